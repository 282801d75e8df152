"""Compares checkpoints of several files with torch in both directions, bit for bit.

    python torch_sets.py --statelens BINARY --work FOLDER

- Fixtures are converted to shards. Each shard must load with `weights_only=True`, the index must list its tensors, and
  the shards together must equal the values that `torch.load` loads from the source.
- Distributed checkpoints of one process and of several are converted to `.pt`. The result must equal the output of
  `dcp_to_torch_save`.

The exit status is 1 if anything differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"

# Flat and nested state dicts, with ties and with plain values.
SOURCES = [
    "torch/zip_all_dtypes.pt",
    "torch/zip_tied.pt",
    "torch/zip_module_state_dict.pt",
    "torch/legacy_module_state_dict.pt",
    "torch/zip_training_ckpt.pt",
]
FOLDERS = ["dcp_single", "dcp_ranks"]

failures = []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    print("; ".join([shards(options), folders(options)]))
    for failure in failures:
        print("FAILED", failure)
    sys.exit(bool(failures))


def check(ok, message):
    if not ok:
        failures.append(message)
    return ok


def statelens(options, *arguments):
    return subprocess.run([options.statelens, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def shards(options):
    files = 0
    for source in SOURCES:
        folder = options.work / source.replace("/", "_")
        folder.mkdir()
        target = folder / "pytorch_model.bin"
        size = max(1, (FIXTURES / source).stat().st_size // 8)
        process = statelens(options, "convert", "--lossy", "--shard-size", size, FIXTURES / source, target)
        if not check(process.returncode == 0, f"{source}: {process.stderr}"):
            continue
        index = json.loads((folder / "pytorch_model.bin.index.json").read_text())["weight_map"]
        merged = {}
        written = sorted(folder.glob("pytorch_model-*-of-*.bin"))
        check(len(written) > 1, f"{source}: {len(written)} shards")
        for shard in written:
            part = torch.load(shard, weights_only=True)
            check(not merged.keys() & part.keys(), f"{source}: {shard.name} repeats keys of another shard")
            merged.update(part)
            tensors = {name for name, value in part.items() if isinstance(value, torch.Tensor)}
            listed = {name for name, file in index.items() if file == shard.name}
            check(tensors == listed, f"{source}: the index lists {listed} in {shard.name}, which has {tensors}")
            files += 1
        expected = flat(torch.load(FIXTURES / source, weights_only=False))
        compare(source, merged, expected)
        # Tensors that share memory in the source must share memory in the output.
        for name, first in sharing(expected):
            check(pointer(merged[name]) == pointer(merged[first]), f"{source}: {name} and {first} are no longer tied")
    return f"{len(SOURCES)} state dicts in {files} shards loaded by torch"


def folders(options):
    for name in FOLDERS:
        expected, output = options.work / f"{name}.expected.pt", options.work / f"{name}.pt"
        dcp_to_torch_save(FIXTURES / name, expected)
        process = statelens(options, "convert", FIXTURES / name / ".metadata", output)
        if check(process.returncode == 0, f"{name}: {process.stderr}"):
            ours, theirs = torch.load(output, weights_only=True), torch.load(expected, weights_only=False)
            compare(name, flat(ours), flat(theirs))
    return f"{len(FOLDERS)} distributed checkpoints compared with the output of dcp_to_torch_save"


def flat(value, path=()):
    """Returns the leaves by flat key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    leaves = {}
    for key, child in items:
        leaves.update(flat(child, (*path, str(key))))
    return leaves or {".".join(path): value}


def compare(name, actual, expected):
    check(actual.keys() == expected.keys(), f"{name}: keys {set(actual) ^ set(expected)}")
    for key in actual.keys() & expected.keys():
        check(same(actual[key], expected[key]), f"{name}: {key} is {actual[key]!r}, not {expected[key]!r}")


def same(actual, expected):
    if not isinstance(expected, torch.Tensor):
        return type(actual) is type(expected) and (actual == expected or actual != actual)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    return raw(actual) == raw(expected)


def raw(tensor):
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return bytes(tensor.contiguous().clone().untyped_storage())


def pointer(tensor):
    return tensor.untyped_storage().data_ptr()


def sharing(tensors):
    """Yields the names of tensors, each with the name of an earlier tensor that has the same storage."""
    seen = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            if pointer(tensor) in seen:
                yield name, seen[pointer(tensor)]
            seen[pointer(tensor)] = name


if __name__ == "__main__":
    main()
