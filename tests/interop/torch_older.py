"""Interop with two releases of torch: what `torch.load(weights_only=True)` takes of our files in each.

    python torch_older.py --statelens BINARY --work FOLDER

Run with torch 2.4, which cerebras-pytorch 2.10 brings, and with today's torch. A file for which nothing is
said about torch 2.4 must load in both with `weights_only=True`. A file for which it is said must load in
today's torch so, must be refused by 2.4, and must load there with `weights_only=False`. Exit status 1 if
anything differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"
OLDER = torch.__version__.startswith("2.4")
NOTE = "weights_only=True"

# Checkpoints of every kind that becomes a .pt file; some hold bytes, sets and complex numbers.
SOURCES = [
    "torch/zip_all_dtypes.pt",
    "torch/zip_tied.pt",
    "torch/zip_views.pt",
    "torch/zip_numpy.pt",
    "torch/zip_nested_python.pt",
    "torch/zip_training_ckpt.pt",
    "torch/zip_module_state_dict.pt",
    "torch/legacy_all_dtypes.pt",
    "cerebras/v2.10.0/gpt_small.mdl",
    "cerebras/v2.4.0/gpt_small.mdl",
    "numpy/plain.npz",
    "keras/k2_full.h5",
]

# Values of one kind each: what 2.4 takes of them.
VALUES = {
    "no_items": (set(), True),
    "items": ({1, 2}, False),
    "bytes": (b"ab", False),
    "bytearray": (bytearray(b"ab"), False),
    "complex": (1 + 2j, False),
    "tensor": (torch.arange(6).reshape(2, 3), True),
    "text": ("ab", True),
}

failures = []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    told = 0
    for source in SOURCES:
        told += one(options, FIXTURES / source, source.replace("/", "_"))
    for name, (value, takes) in VALUES.items():
        source = options.work / f"{name}.source.pt"
        torch.save({"value": value, "tensor": torch.ones(2)}, source)
        noted = one(options, source, name)
        check(noted != takes, f"{name}: a note is {'there' if noted else 'missing'}")
    count = len(SOURCES) + len(VALUES)
    print(f"torch {torch.__version__}: {count} files load as they should; {told} of the fixtures need a later one")
    for failure in failures:
        print("FAILED", failure)
    sys.exit(bool(failures))


def one(options, source, name):
    """Converts and loads; whether something was said about torch 2.4."""
    target = options.work / f"{name}.out.pt"
    command = [options.statelens, "convert", "--lossy", "--json", source, target]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    if not check(done.returncode == 0, f"{name}: {done.stderr}"):
        return False
    noted = NOTE in json.dumps(json.loads(done.stdout)) and "2.4" in done.stdout
    try:
        torch.load(target, weights_only=True)
        loaded = True
    except Exception as error:
        loaded = False
        reason = error
    if OLDER and noted:
        check(not loaded, f"{name}: torch 2.4 takes it, though we say that it doesn't")
        torch.load(target, weights_only=False)
    else:
        check(loaded, f"{name}: {'' if loaded else reason}")
    return noted


def check(ok, what):
    if not ok:
        failures.append(what)
    return ok


main()
