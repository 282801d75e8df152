"""Loads our files with `torch.load(weights_only=True)` in torch 2.4 and in current torch.

    python torch_older.py --statelens BINARY --work FOLDER

Run it with torch 2.4, a dependency of cerebras-pytorch 2.10, and with current torch. If a conversion does not mention
torch 2.4, both must load its output. If it does, current torch must load the output, torch 2.4 must refuse it, and
torch 2.4 must load it with `weights_only=False`. The exit status is 1 if anything differs.
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

# Checkpoints of several formats. Some have bytes, sets and complex numbers.
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

# Values, and whether torch 2.4 loads them with `weights_only=True`.
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
    newer = 0
    for source in SOURCES:
        newer += has_note(options, FIXTURES / source, source.replace("/", "_"))
    for name, (value, loads) in VALUES.items():
        source = options.work / f"{name}.source.pt"
        torch.save({"value": value, "tensor": torch.ones(2)}, source)
        noted = has_note(options, source, name)
        check(noted != loads, f"{name}: {'unexpected' if noted else 'missing'} note about torch 2.4")
    count = len(SOURCES) + len(VALUES)
    print(f"torch {torch.__version__}: {count} files checked; {newer} of the fixtures need a later torch than 2.4")
    for failure in failures:
        print("FAILED", failure)
    sys.exit(bool(failures))


def has_note(options, source, name):
    """Converts a file and checks that torch loads it. Returns whether the conversion has a note about torch 2.4."""
    target = options.work / f"{name}.out.pt"
    command = [options.statelens, "convert", "--lossy", "--json", source, target]
    process = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)
    if not check(process.returncode == 0, f"{name}: {process.stderr}"):
        return False
    noted = NOTE in json.dumps(json.loads(process.stdout)) and "2.4" in process.stdout
    try:
        torch.load(target, weights_only=True)
        loaded = True
    except Exception as error:
        loaded = False
        reason = error
    if OLDER and noted:
        check(not loaded, f"{name}: torch 2.4 loads it, but the note says that it does not")
        torch.load(target, weights_only=False)
    else:
        check(loaded, f"{name}: {'' if loaded else reason}")
    return noted


def check(ok, message):
    if not ok:
        failures.append(message)
    return ok


main()
