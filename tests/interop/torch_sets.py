"""Interop with torch on checkpoints of several files, both ways, bit for bit.

    python torch_sets.py --statelens BINARY --work FOLDER

Ours for it: fixtures are cut into shards; every shard must load with `weights_only=True`, the index must
say what is where, and together they must be what `torch.load` loads from the source. Its for ours:
distributed checkpoints of one process and of several are converted to `.pt`, which must be what
`dcp_to_torch_save` makes of them. Exit status 1 if anything differs.
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

# Flat and nested, tied and plain, with values that are no tensors.
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


def check(ok, what):
    if not ok:
        failures.append(what)
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
        done = statelens(options, "convert", "--lossy", "--shard-size", size, FIXTURES / source, target)
        if not check(done.returncode == 0, f"{source}: {done.stderr}"):
            continue
        index = json.loads((folder / "pytorch_model.bin.index.json").read_text())["weight_map"]
        merged = {}
        written = sorted(folder.glob("pytorch_model-*-of-*.bin"))
        check(len(written) > 1, f"{source}: {len(written)} shards")
        for shard in written:
            part = torch.load(shard, weights_only=True)
            check(not merged.keys() & part.keys(), f"{source}: {shard.name} holds what another holds, too")
            merged.update(part)
            tensors = {name for name, value in part.items() if isinstance(value, torch.Tensor)}
            named = {name for name, file in index.items() if file == shard.name}
            check(tensors == named, f"{source}: the index names {named} in {shard.name}, which holds {tensors}")
            files += 1
        expected = flat(torch.load(FIXTURES / source, weights_only=False))
        compare(source, merged, expected)
        # Tensors that shared memory do so again.
        for one, other in sharing(expected):
            check(pointer(merged[one]) == pointer(merged[other]), f"{source}: {one} and {other} are no longer tied")
    return f"{len(SOURCES)} state dicts in {files} shards loaded by torch"


def folders(options):
    for name in FOLDERS:
        wanted, written = options.work / f"{name}.wanted.pt", options.work / f"{name}.pt"
        dcp_to_torch_save(FIXTURES / name, wanted)
        done = statelens(options, "convert", FIXTURES / name / ".metadata", written)
        if check(done.returncode == 0, f"{name}: {done.stderr}"):
            ours, theirs = torch.load(written, weights_only=True), torch.load(wanted, weights_only=False)
            compare(name, flat(ours), flat(theirs))
    return f"{len(FOLDERS)} distributed checkpoints equal to what torch merges"


def flat(value, path=()):
    """Leaves by their names with dots, as they are when nesting is given up."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    leaves = {}
    for key, below in items:
        leaves.update(flat(below, (*path, str(key))))
    return leaves or {".".join(path): value}


def compare(name, found, expected):
    check(found.keys() == expected.keys(), f"{name}: keys {set(found) ^ set(expected)}")
    for key in found.keys() & expected.keys():
        check(same(found[key], expected[key]), f"{name}: {key} is {found[key]!r}, not {expected[key]!r}")


def same(one, other):
    if not isinstance(other, torch.Tensor):
        return type(one) is type(other) and (one == other or one != one)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return raw(one) == raw(other)


def raw(tensor):
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return bytes(tensor.contiguous().clone().untyped_storage())


def pointer(tensor):
    return tensor.untyped_storage().data_ptr()


def sharing(tensors):
    seen = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            if pointer(tensor) in seen:
                yield name, seen[pointer(tensor)]
            seen[pointer(tensor)] = name


if __name__ == "__main__":
    main()
