"""Compares with the safetensors library in both directions, bit for bit.

    python safetensors_files.py --statelens BINARY --work FOLDER

- Fixtures are converted to safetensors. `safetensors.torch` must load the same tensors as `torch.load` from the source,
  and saving them again must give the same bytes.
- Files of the library, with all dtypes, tied weights and shards, are read with `statelens manifest` and converted to
  `.pt`.
- Both must agree which files are sound: the fixtures for this purpose, and files with one changed byte.

The exit status is 1 if anything differs.
"""

import argparse
import hashlib
import json
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file, save, save_file, save_model

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"

SOURCES = [
    "torch/zip_all_dtypes.pt",
    "torch/zip_new_dtypes.pt",
    "torch/zip_views.pt",
    "torch/zip_tied.pt",
    "torch/zip_0d_empty.pt",
    "torch/zip_module_state_dict.pt",
    "torch/zip_training_ckpt.pt",
    "torch/legacy_all_dtypes.pt",
    "torch/legacy_tied.pt",
]

# Dtypes of torch that the format lacks. Their tensors are lost.
LACKING = {torch.complex128, torch.complex32, torch.quint4x2, torch.quint2x4, torch.qint8, torch.quint8, torch.qint32}

DTYPES = [
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn_x2",
]

failures = []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    counts = [
        ours(options),
        every_dtype(options),
        shards(options),
        verdicts(options),
    ]
    print("; ".join(counts))
    for failure in failures:
        print("FAILED", failure)
    sys.exit(bool(failures))


def check(ok, message):
    if not ok:
        failures.append(message)
    return ok


def statelens(options, *arguments):
    return subprocess.run([options.statelens, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def convert(options, *arguments):
    process = statelens(options, "convert", "--lossy", *arguments)
    return check(process.returncode == 0, f"convert {arguments}: {process.stderr}")


def bits(tensor):
    """Returns the elements as bytes, in C order."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() == 0:
        return b""
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def flat(value, name=()):
    """Yields flat keys and tensors."""
    if isinstance(value, torch.Tensor):
        yield ".".join(name), value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, (*name, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from flat(inner, (*name, str(index)))


def is_supported(tensor):
    return not tensor.is_quantized and tensor.layout == torch.strided and not tensor.is_meta and tensor.dtype not in LACKING


def header(data):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), 8 + length


def ours(options):
    """Compares our files with the library's files of the same tensors."""
    compared = 0
    for source in SOURCES:
        path = FIXTURES / source
        out = options.work / (path.name + ".safetensors")
        if not convert(options, path, out):
            continue
        expected = {name: tensor for name, tensor in flat(torch.load(path, weights_only=True)) if is_supported(tensor)}
        loaded = load_file(out)
        data = out.read_bytes()
        entries, start = header(data)
        metadata = entries.pop("__metadata__", {})
        for name, tensor in expected.items():
            # The metadata maps omitted names of tied tensors to the stored ones, as `save_model` does.
            actual = loaded.get(metadata.get(name, name))
            if check(actual is not None, f"{source}: {name} is missing"):
                same = (actual.dtype, actual.shape, bits(actual)) == (tensor.dtype, tensor.shape, bits(tensor))
                check(same, f"{source}: {name} differs")
                compared += 1
        check(set(loaded) <= set(expected), f"{source}: unexpected tensors: {set(loaded) - set(expected)}")
        again = save(loaded, metadata=metadata or None)
        # The library orders several entries of the metadata at random.
        if len(metadata) <= 1:
            check(again == data, f"{source}: the library writes different bytes")
        else:
            theirs, offset = header(again)
            theirs.pop("__metadata__")
            check(list(theirs.items()) == list(entries.items()), f"{source}: the library writes a different header")
            check(again[offset:] == data[start:], f"{source}: the library writes different data")
    return f"{compared} tensors of {len(SOURCES)} files loaded"


def every_dtype(options):
    """Reads files of the library with all dtypes and with tied tensors."""
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        size = torch.empty(0, dtype=dtype).element_size()
        raw = torch.randint(0, 2 if name == "bool" else 256, (3, 4 * size), dtype=torch.uint8, generator=generator)
        tensors[f"层.{name}"] = raw.view(dtype)
        tensors[f"empty.{name}"] = torch.empty((0, 5), dtype=torch.uint8).view(dtype) if size == 1 else torch.empty((0, 5), dtype=dtype)
    path = options.work / "dtypes.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    manifest(options, path, tensors)
    again = options.work / "dtypes-again.safetensors"
    if convert(options, path, again):
        check(again.read_bytes() == path.read_bytes(), "dtypes: the bytes of our copy differ")
    back = options.work / "dtypes.pt"
    if convert(options, path, back):
        loaded = torch.load(back, weights_only=True)
        check(list(sorted(loaded)) == sorted(tensors), "dtypes.pt: the keys differ")
        for name, tensor in tensors.items():
            same = loaded[name].dtype == tensor.dtype and bits(loaded[name]) == bits(tensor)
            check(same, f"dtypes.pt: {name} differs")
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    module[1].weight = module[0].weight
    tied = options.work / "tied.safetensors"
    # transformers requires this entry in files of torch's tensors, so we write it.
    save_model(module, tied, metadata={"format": "pt"})
    entries = manifest(options, tied, module.state_dict())
    check(entries["1.weight"].get("alias_of") == "0.weight", "tied: the tie is missing")
    source, again = options.work / "tied.pt", options.work / "tied-again.safetensors"
    torch.save(module.state_dict(), source)
    if convert(options, source, again):
        # The library orders several entries of the metadata at random.
        files = [path.read_bytes() for path in (again, tied)]
        (entries, start), (expected, begin) = map(header, files)
        same = entries == expected and files[0][start:] == files[1][begin:]
        check(same, "tied: the file differs from that of save_model")
    return f"{len(tensors)} tensors of {len(DTYPES)} dtypes described"


def manifest(options, path, tensors):
    process = statelens(options, "manifest", "--json", path)
    if not check(process.returncode == 0, f"{path.name}: {process.stderr}"):
        return {}
    entries = {entry["key"]: entry for entry in json.loads(process.stdout)["entries"]}
    check(set(entries) == set(tensors), f"{path.name}: keys {set(entries) ^ set(tensors)}")
    for name, tensor in tensors.items():
        entry = entries.get(name, {})
        expected = (str(tensor.dtype).removeprefix("torch."), list(tensor.shape), hashlib.sha256(bits(tensor)).hexdigest())
        actual = (entry.get("dtype"), entry.get("shape"), entry.get("sha256"))
        check(actual == expected, f"{path.name}: {name}: {actual}, expected {expected}")
    return entries


def shards(options):
    """Loads our sharded output by its index, as the Hugging Face libraries do."""
    generator = torch.Generator().manual_seed(8)
    tensors = {f"layers.{index}.weight": torch.randn(64, 64, generator=generator) for index in range(10)}
    source = options.work / "whole.safetensors"
    save_file(tensors, source)
    folder = options.work / "set"
    folder.mkdir()
    if not convert(options, source, folder / "model.safetensors", "--shard-size", "40KB"):
        return "no shards"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    check(files == [f"model-{n:05}-of-00005.safetensors" for n in range(1, 6)], f"shards {files}")
    check(index["metadata"]["total_size"] == 10 * 64 * 64 * 4, "total_size")
    check(set(index["weight_map"]) == set(tensors), "weight_map")
    for name, file in index["weight_map"].items():
        with safetensors.safe_open(folder / file, framework="pt") as shard:
            check(torch.equal(shard.get_tensor(name), tensors[name]), f"{file}: {name} differs")
    # The folder, the index and a shard open the whole set.
    for path in (folder, folder / "model.safetensors.index.json", folder / files[3]):
        manifest(options, path, tensors)
    return f"{len(files)} shards loaded"


def verdicts(options):
    """Compares which files we and the library accept as sound."""
    files = [path.read_bytes() for path in sorted((FIXTURES / "safetensors").glob("*.safetensors"))]
    tensors = {"a": torch.arange(3, dtype=torch.int16), "b.c": torch.ones(2, 1), "d": torch.tensor(True)}
    whole = save(tensors, metadata={"a": "b"})
    chance = random.Random(9)
    for _ in range(400):
        changed = bytearray(whole)
        offset = chance.randrange(len(changed))
        changed[offset] = chance.choice([chance.randrange(256), *b'0123456789"{}[],:. \\'])
        files.append(bytes(changed))
    path = options.work / "verdict.safetensors"
    refused = 0
    for data in files:
        path.write_bytes(data)
        try:
            safetensors.deserialize(data)
            theirs = None
        except Exception as error:
            theirs = str(error)
            refused += 1
        # We may open a file that the library refuses, but `verify` must report it as damaged.
        process = statelens(options, "info" if theirs is None else "verify", path)
        agree = process.returncode in ((0,) if theirs is None else (1, 2))
        if check(agree, f"verdict: theirs {theirs!r}, ours {process.stderr!r}"):
            continue
        (options.work / f"verdict-{len(failures)}.safetensors").write_bytes(data)
    return f"{len(files)} verdicts agree, {refused} of them refusals"


if __name__ == "__main__":
    main()
