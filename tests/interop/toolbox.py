"""Compares the commands for training with the Cerebras library and with torch.

    python toolbox.py --statelens BINARY --work FOLDER

Runs in the environment of cerebras-pytorch, which must load the output of the commands. torch computes the expected
results of `diff` and `check`. The exit status is 1 if anything differs.
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
# Files of formats 0.1 to 0.4 of all kinds that cstorch loads or has loaded.
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
    for part in (repair, upgrade, dataloader, diff, check):
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

    def __call__(self, passed, message):
        self.count += 1
        if not passed:
            self.problems.append(message)


def statelens(options, *arguments, expect=(0,)):
    process = subprocess.run([options.statelens, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if process.returncode not in expect:
        output = f"{process.returncode}\n{process.stdout}{process.stderr}"
        raise SystemExit(f"statelens {' '.join(map(str, arguments))}: {output}")
    return process


def flat(value, name=""):
    """Returns the leaves of a loaded value by flat key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if items is None:
        return {name: value}
    leaves = {}
    for key, child in items:
        leaves.update(flat(child, f"{name}.{key}" if name else str(key)))
    return leaves


def plain(value):
    """Returns the dtype, shape and bytes of a tensor or array, and other values unchanged."""
    value = getattr(value, "value", value) if type(value).__name__ == "DeferredObject" else value
    if isinstance(value, torch.Tensor):
        data = value.clone().contiguous().reshape(-1)
        raw = data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
        return ("tensor", str(value.dtype), tuple(value.shape), raw)
    if type(value).__module__ == "numpy":
        return ("array", str(value.dtype), value.shape, numpy.asarray(value).tobytes())
    return value


def same(checks, title, actual, expected):
    actual, expected = flat(actual), flat(expected)
    checks(list(actual) == list(expected), f"{title}: keys {set(actual) ^ set(expected)}")
    for key, value in expected.items():
        ours, theirs = plain(actual.get(key)), plain(value)
        both_nan = isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours) and math.isnan(theirs)
        checks(ours == theirs or both_nan, f"{title}: {key}: {str(ours)[:100]} is not {str(theirs)[:100]}")


def untyped(path):
    """Reads a file of release 1.7 or older with h5py, because the library no longer loads it."""
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


def repair(checks, options):
    source = FIXTURES / "compat/synthetic_1.7.mdl"
    expected = untyped(FIXTURES / "compat/synthetic_1.7_fixed.mdl")
    checks(not loads(source), "the old checkpoint loads without a conversion, so the case tests nothing")
    new = options.work / "upgraded.mdl"
    statelens(options, "fix-checkpoint-spec", source, "--fixed_checkpoint_path", new, "--upgrade")
    actual = flat(cstorch.load(new))
    same(checks, "repaired and upgraded", dict(sorted(actual.items())), dict(sorted(expected.items())))
    # Without the upgrade, all attributes must equal those of the original script.
    new = options.work / "fixed.mdl"
    statelens(options, "fix-checkpoint-spec", source, "--fixed_checkpoint_path", new)
    with h5py.File(new, "r") as ours, h5py.File(FIXTURES / "compat/synthetic_1.7_fixed.mdl", "r") as theirs:
        checks(set(ours.attrs) == set(theirs.attrs), f"attributes of the root: {set(ours.attrs)}")
        checks(set(ours) == set(theirs), f"datasets: {set(ours) ^ set(theirs)}")
        for key, dataset in theirs.items():
            our_dataset = ours[key]
            checks(numpy.array_equal(our_dataset[()], dataset[()]), f"{key}: {our_dataset[()]} is not {dataset[()]}")
            checks(our_dataset.dtype == dataset.dtype, f"{key}: {our_dataset.dtype} is not {dataset.dtype}")
            attributes = [{name: bool(value) for name, value in each.attrs.items()} for each in (our_dataset, dataset)]
            checks(attributes[0] == attributes[1], f"{key}: {attributes}")
        addresses = [[h5py.h5o.get_info(file[key].id).addr for key in TIED] for file in (ours, theirs)]
        checks(all(first == second for first, second in addresses), f"tied weights have two addresses: {addresses}")


TIED = ("model.ln_f.weight", "model.transformer_decoder.norm.weight")


def upgrade(checks, options):
    for name in UPGRADED + DOWNGRADED:
        to = "0.4" if name in DOWNGRADED else "0.5"
        new = options.work / f"{name.replace('/', '_')}.{to}.mdl"
        statelens(options, "upgrade", FIXTURES / name, "--to", to, "-o", new)
        actual = cstorch.load(new)
        if name.startswith("compat/"):
            checks(not loads(FIXTURES / name), f"{name} loads without a conversion")
            expected = dict(sorted(untyped(FIXTURES / name).items()))
            actual = dict(sorted(flat(actual).items()))
        else:
            expected = cstorch.load(FIXTURES / name)
        same(checks, f"{name} as {to}", actual, expected)
        with h5py.File(new, "r") as file:
            checks(file.attrs["__version__"] == float(to), f"{name}: {file.attrs['__version__']}")


def dataloader(checks, options):
    source, states = FIXTURES / "v2.4.0/gpt_small.mdl", FIXTURES / "compat/dl_state"
    for kind in ("map", "iterable"):
        new = options.work / f"dl_{kind}.mdl"
        statelens(options, "convert-dataloader-state", "-c", source, "-w", states, "-o", new, "-d", kind, "-s", 42)
        converted, original = cstorch.load(new), cstorch.load(FIXTURES / f"compat/dl_{kind}.mdl")
        same(checks, f"dataloader of {kind}", converted.pop("dataloader"), original["dataloader"])
        expected = cstorch.load(source)
        del expected["dataloader"]
        same(checks, f"all but the dataloader, {kind}", converted, expected)


def diff(checks, options):
    """Compares the distances of `diff` with those that torch computes."""
    generator = torch.Generator().manual_seed(1)
    left = {"a": torch.randn(64, 33, generator=generator), "b": torch.randn(1000, generator=generator).double()}
    left["c"] = torch.randn(501, generator=generator).bfloat16()
    left["i"] = torch.randint(-1000, 1000, (77,), generator=generator)
    right = {key: value.clone() for key, value in left.items()}
    right["a"][3, 5:9] += 0.25
    right["b"][::7] *= 1.001
    right["c"][100] = 7
    right["i"][50:] += 3
    paths = [options.work / "left.pt", options.work / "right.pt"]
    torch.save(left, paths[0])
    torch.save(right, paths[1])
    report = json.loads(statelens(options, "diff", *paths, "--json", expect=(1,)).stdout)
    differences = {difference["key"]: difference for difference in report["differences"]}
    checks(set(differences) == set(left), f"keys that differ: {set(differences)}")
    for key in left:
        a, b = left[key].double(), right[key].double()
        distance, actual = (a - b).abs(), differences[key]
        checks(actual["differing"] == int((a != b).sum()), f"{key}: {actual['differing']} differ")
        first = [int(index) for index in (a != b).nonzero()[0]]
        checks(actual["first"] == first, f"{key}: first at {actual['first']}, not {first}")
        cosine = torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
        mse, max_rel = (distance**2).mean(), (distance / b.abs()).max()
        expected = {"max_abs": distance.max(), "max_rel": max_rel, "mse": mse, "cosine": cosine}
        for name, value in expected.items():
            close = math.isclose(actual[name], float(value), rel_tol=1e-9)
            checks(close, f"{key}: {name} {actual[name]}, torch has {float(value)}")
    for rtol, atol in ((1e-5, 1e-8), (1e-2, 0.0), (0.0, 0.3), (1.0, 100.0)):
        arguments = ["diff", *paths, "--json", "--op", "allclose", "--rtol", rtol, "--atol", atol]
        report = json.loads(statelens(options, *arguments, expect=(0, 1)).stdout)
        differing = {difference["key"] for difference in report["differences"]}
        expected = {key for key in left if not torch.allclose(left[key].double(), right[key].double(), rtol, atol)}
        checks(differing == expected, f"rtol {rtol}, atol {atol}: {differing}, torch has {expected}")


def check(checks, options):
    """Compares the result of `check` with that of `load_state_dict`."""
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
                # If no key matches, torch succeeds without loading anything, but `check` fails.
                expected = 1
            arguments = ["check", path, "--against", reference, "--json"] + ([] if strict else ["--no-strict"])
            process = statelens(options, *arguments, expect=(0, 1))
            status = process.returncode
            checks(status == expected, f"{name}, strict {strict}: {status}, torch has {expected}")
            if name == "prefix":
                option = json.loads(process.stdout)["rename"]["option"]
                checks(option == "--strip-prefix net.", f"{name}: {process.stdout}")


if __name__ == "__main__":
    sys.exit(main())
