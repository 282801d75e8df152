"""Loads our files of format 0.4 with cerebras-pytorch 2.4, the last release before format 0.5.

    python older.py --statelens BINARY --work FOLDER

Runs in the environment of cerebras-pytorch 2.4, which has wheels for Python 3.8 only. The exit status is 1 if anything
differs.
"""

import argparse
import shutil
import sys
import warnings
from pathlib import Path

import torch

warnings.simplefilter("ignore")

import cerebras.pytorch as cstorch

from toolbox import FIXTURES, Checks, flat, loads, same, statelens

# Fixtures of release 2.10. Each `.mdl` has a sibling `.pt` that `torch.save` wrote from the same state dict.
NEW = ["gpt_small", "gpt_small_bf16", "dtypes", "tied", "strings", "seed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    checks = Checks()
    print(f"cerebras-pytorch {cstorch.__version__}")
    for part in (downgrade, convert, repair, dataloader):
        before = checks.count
        part(checks, options)
        print(f"{part.__name__:12}{checks.count - before} checks")
    for problem in checks.problems:
        print(problem)
    print(f"{len(checks.problems)} problems" if checks.problems else "Everything agrees with release 2.4.")
    return 1 if checks.problems else 0


def load_pt(name):
    return torch.load(FIXTURES / f"v2.10.0/{name}.pt", weights_only=False)


def downgrade(checks, options):
    for name in NEW:
        source = FIXTURES / f"v2.10.0/{name}.mdl"
        checks(not loads(source), f"{name} loads without a conversion, so the case tests nothing")
        new = options.work / f"{name}.mdl"
        statelens(options, "upgrade", source, "--to", "0.4", "-o", new)
        same(checks, f"{name} as 0.4", cstorch.load(new), load_pt(name))


def convert(checks, options):
    for name in NEW:
        for compression in ([], ["--compress", "lz4"], ["--compress", "gzip"]):
            new = options.work / f"{name}-pt{''.join(compression)}.mdl"
            source = FIXTURES / f"v2.10.0/{name}.pt"
            statelens(options, "convert", source, new, "--format-version", "0.4", *compression)
            same(checks, f"{name}.pt {compression}", cstorch.load(new), load_pt(name))


def repair(checks, options):
    """Compares `fix_checkpoint_spec` with the original script, using the release that the script is for."""
    new = options.work / "fixed.mdl"
    old = FIXTURES / "compat/synthetic_1.7.mdl"
    # Before the repair, the file loads with a warning and without three weights.
    before = flat(cstorch.load(old))
    lost = [key for key, value in before.items() if value is None]
    checks(len(lost) == 3, f"{lost} are missing before the repair")
    statelens(options, "fix_checkpoint_spec", old, "--fixed_checkpoint_path", new)
    same(checks, "repaired", cstorch.load(new), cstorch.load(FIXTURES / "compat/synthetic_1.7_fixed.mdl"))


def dataloader(checks, options):
    source, states = FIXTURES / "v2.4.0/gpt_small.mdl", FIXTURES / "compat/dl_state"
    for kind in ("map", "iterable"):
        new = options.work / f"dl_{kind}.mdl"
        statelens(options, "convert-dataloader-state", "-c", source, "-w", states, "-o", new, "-d", kind, "-s", 42)
        loaded, original = cstorch.load(new), cstorch.load(FIXTURES / f"compat/dl_{kind}.mdl")
        same(checks, f"dataloader of {kind}", loaded.pop("dataloader"), original["dataloader"])
        expected = cstorch.load(source)
        del expected["dataloader"]
        same(checks, f"all but the dataloader, {kind}", loaded, expected)


if __name__ == "__main__":
    sys.exit(main())
