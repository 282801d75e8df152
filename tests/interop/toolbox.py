"""Interop of the commands for those who train: what they write loads in the Cerebras library, what
they say is what torch says.

    python toolbox.py --statelens BINARY --work FOLDER

Runs in the environment of cerebras-pytorch. Exit status 1 if anything differs.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import numpy
import torch

warnings.simplefilter("ignore")

import cerebras.pytorch as cstorch

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures" / "cerebras"
# Of formats 0.1 to 0.4, in the variety that cstorch loads or did load.
UPGRADED = [
    "compat/synthetic_1.7_fixed.mdl",
    "errors/v03_from_201.mdl",
    "v2.4.0/gpt_small.mdl",
    "v2.4.0/gpt_small_bf16.mdl",
    "v2.4.0/dtypes.mdl",
    "v2.4.0/tied.mdl",
    "v2.4.0-special/full_tensors.mdl",
]
DOWNGRADED = ["v2.10.0/gpt_small.mdl", "v2.10.0/dtypes.mdl", "v2.10.0/strings.mdl"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    checks = Checks()
    for part in (repaired, upgraded, dataloader, compared, checked):
        before = checks.count
        part(checks, options)
        print(f"{part.__name__:12}{checks.count - before} checks")
    for problem in checks.problems:
        print(problem)
    print(f"{len(checks.problems)} problems" if checks.problems else "Everything agrees with the real libraries.")
    return 1 if checks.problems else 0


class Checks:
    def __init__(self):
        self.count, self.problems = 0, []

    def __call__(self, holds, what):
        self.count += 1
        if not holds:
            self.problems.append(what)


def statelens(options, *arguments, expect=(0,)):
    done = subprocess.run([options.statelens, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode not in expect:
        raise SystemExit(f"statelens {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def flat(value, name=""):
    """The leaves of what was loaded, by flat keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if items is None:
        return {name: value}
    found = {}
    for key, child in items:
        found.update(flat(child, f"{name}.{key}" if name else str(key)))
    return found


def plain(value):
    """A tensor as dtype, shape and bytes; anything else as it is."""
    value = getattr(value, "value", value) if type(value).__name__ == "DeferredObject" else value
    if isinstance(value, torch.Tensor):
        data = value.clone().contiguous().reshape(-1)
        held = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
        return ("tensor", str(value.dtype), tuple(value.shape), held)
    if type(value).__module__ == "numpy":
        return ("array", str(value.dtype), value.shape, numpy.asarray(value).tobytes())
    return value


def same(checks, what, found, expected):
    found, expected = flat(found), flat(expected)
    checks(list(found) == list(expected), f"{what}: keys {set(found) ^ set(expected)}")
    for key, value in expected.items():
        one, other = plain(found.get(key)), plain(value)
        equal = one == other or isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
        checks(equal, f"{what}: {key}: {str(one)[:100]} is not {str(other)[:100]}")


def untyped(path):
    """A file of release 1.7 or older, which the library no longer loads, by h5py."""
    values = {}
    with h5py.File(path, "r") as file:
        for key, dataset in file.items():
            if dataset.attrs.get("is_scalar"):
                values[key] = dataset[()].item()
            else:
                tensor = torch.from_numpy(dataset[()])
                values[key] = tensor.view(torch.bfloat16) if dataset.attrs.get("is_bfloat16") else tensor
    return values


def loads(path):
    try:
        cstorch.load(path)
    except Exception:
        return False
    return True


def repaired(checks, options):
    source = FIXTURES / "compat/synthetic_1.7.mdl"
    expected = untyped(FIXTURES / "compat/synthetic_1.7_fixed.mdl")
    checks(not loads(source), "the old checkpoint loads as it is, so that nothing was shown")
    new = options.work / "upgraded.mdl"
    statelens(options, "fix-checkpoint-spec", source, "--fixed_checkpoint_path", new, "--upgrade")
    found = flat(cstorch.load(new))
    same(checks, "repaired and upgraded", dict(sorted(found.items())), dict(sorted(expected.items())))
    # Without the upgrade it is what the original script wrote, attribute by attribute.
    new = options.work / "fixed.mdl"
    statelens(options, "fix-checkpoint-spec", source, "--fixed_checkpoint_path", new)
    with h5py.File(new, "r") as ours, h5py.File(FIXTURES / "compat/synthetic_1.7_fixed.mdl", "r") as theirs:
        checks(set(ours.attrs) == set(theirs.attrs), f"attributes of the root: {set(ours.attrs)}")
        checks(set(ours) == set(theirs), f"datasets: {set(ours) ^ set(theirs)}")
        for key, dataset in theirs.items():
            mine = ours[key]
            checks(numpy.array_equal(mine[()], dataset[()]), f"{key}: {mine[()]} is not {dataset[()]}")
            checks(mine.dtype == dataset.dtype, f"{key}: {mine.dtype} is not {dataset.dtype}")
            attributes = [{name: bool(value) for name, value in each.attrs.items()} for each in (mine, dataset)]
            checks(attributes[0] == attributes[1], f"{key}: {attributes}")
        tied = [[h5py.h5o.get_info(file[key].id).addr for key in TIED] for file in (ours, theirs)]
        checks(all(one == other for one, other in tied), f"weights of two names lie apart: {tied}")


TIED = ("model.ln_f.weight", "model.transformer_decoder.norm.weight")


def upgraded(checks, options):
    for name in UPGRADED + DOWNGRADED:
        to = "0.4" if name in DOWNGRADED else "0.5"
        new = options.work / f"{name.replace('/', '_')}.{to}.mdl"
        statelens(options, "upgrade", FIXTURES / name, "--to", to, "-o", new)
        found = cstorch.load(new)
        if name.startswith("compat/"):
            checks(not loads(FIXTURES / name), f"{name} loads as it is")
            expected = dict(sorted(untyped(FIXTURES / name).items()))
            found = dict(sorted(flat(found).items()))
        else:
            expected = cstorch.load(FIXTURES / name)
        same(checks, f"{name} as {to}", found, expected)
        with h5py.File(new, "r") as file:
            checks(file.attrs["__version__"] == float(to), f"{name}: {file.attrs['__version__']}")


def dataloader(checks, options):
    source, states = FIXTURES / "v2.4.0/gpt_small.mdl", FIXTURES / "compat/dl_state"
    for kind in ("map", "iterable"):
        new = options.work / f"dl_{kind}.mdl"
        statelens(options, "convert-dataloader-state", "-c", source, "-w", states, "-o", new, "-d", kind, "-s", 42)
        found, original = cstorch.load(new), cstorch.load(FIXTURES / f"compat/dl_{kind}.mdl")
        same(checks, f"dataloader of {kind}", found.pop("dataloader"), original["dataloader"])
        expected = cstorch.load(source)
        del expected["dataloader"]
        same(checks, f"all but the dataloader, {kind}", found, expected)


def compared(checks, options):
    """The distances that `diff` tells are those that torch computes."""
    generator = torch.Generator().manual_seed(1)
    one = {"a": torch.randn(64, 33, generator=generator), "b": torch.randn(1000, generator=generator).double()}
    one["c"] = torch.randn(501, generator=generator).bfloat16()
    one["i"] = torch.randint(-1000, 1000, (77,), generator=generator)
    two = {key: value.clone() for key, value in one.items()}
    two["a"][3, 5:9] += 0.25
    two["b"][::7] *= 1.001
    two["c"][100] = 7
    two["i"][50:] += 3
    paths = [options.work / "one.pt", options.work / "two.pt"]
    torch.save(one, paths[0])
    torch.save(two, paths[1])
    report = json.loads(statelens(options, "diff", *paths, "--json", expect=(1,)).stdout)
    found = {difference["key"]: difference for difference in report["differences"]}
    checks(set(found) == set(one), f"keys that differ: {set(found)}")
    for key, left in one.items():
        left, right = left.double(), two[key].double()
        apart, told = (left - right).abs(), found[key]
        checks(told["differing"] == int((left != right).sum()), f"{key}: {told['differing']} differ")
        first = [int(index) for index in (left != right).nonzero()[0]]
        checks(told["first"] == first, f"{key}: first at {told['first']}, not {first}")
        cosine = torch.nn.functional.cosine_similarity(left.flatten(), right.flatten(), dim=0)
        expected = {"max_abs": apart.max(), "max_rel": (apart / right.abs()).max(), "mse": (apart**2).mean(), "cosine": cosine}
        for name, value in expected.items():
            checks(math.isclose(told[name], float(value), rel_tol=1e-9), f"{key}: {name} {told[name]}, torch has {float(value)}")
    for rtol, atol in ((1e-5, 1e-8), (1e-2, 0.0), (0.0, 0.3), (1.0, 100.0)):
        arguments = ["diff", *paths, "--json", "--op", "allclose", "--rtol", rtol, "--atol", atol]
        told = json.loads(statelens(options, *arguments, expect=(0, 1)).stdout)
        differing = {difference["key"] for difference in told["differences"]}
        expected = {key for key in one if not torch.allclose(one[key].double(), two[key].double(), rtol, atol)}
        checks(differing == expected, f"rtol {rtol}, atol {atol}: {differing}, torch has {expected}")


def checked(checks, options):
    """`check` says yes where `load_state_dict` loads."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    reference = options.work / "reference.pt"
    torch.save(model.state_dict(), reference)
    state = model.state_dict()
    less = {key: value for key, value in state.items() if key != "1.bias"}
    cases = {
        "same": state,
        "less": less,
        "more": {**state, "new": torch.zeros(1)},
        "shape": {**state, "1.bias": torch.zeros(5)},
        "dtype": {key: value.half() for key, value in state.items()},
        "prefix": {f"net.{key}": value for key, value in state.items()},
    }
    for name, content in cases.items():
        path = options.work / f"{name}.pt"
        torch.save(content, path)
        for strict in (True, False):
            try:
                model.load_state_dict(content, strict=strict)
                expected = 0
            except RuntimeError:
                expected = 1
            if name == "prefix":
                # Torch is content without a single key; we say that nothing would be loaded.
                expected = 1
            arguments = ["check", path, "--against", reference, "--json"] + ([] if strict else ["--no-strict"])
            done = statelens(options, *arguments, expect=(0, 1))
            checks(done.returncode == expected, f"{name}, strict {strict}: {done.returncode}, torch has {expected}")
            if name == "prefix":
                checks(json.loads(done.stdout)["rename"]["option"] == "--strip-prefix net.", f"{name}: {done.stdout}")


if __name__ == "__main__":
    sys.exit(main())
