"""Converts fixtures to `.npz`, and compares the arrays that NumPy loads with the source, bit for bit.

    python numpy_archives.py --statelens BINARY --work FOLDER

The expected values are those of `statelens manifest` for the source, which other tests compare with the formats' own
libraries. NumPy loads the archive with `allow_pickle=False`. Each array must have the dtype, shape and bytes
(little-endian, C order) of the source, and there must be no other arrays. The exit status is 1 if anything differs.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"

# Many sources have plain values, nesting, views, ties and dtypes that NumPy lacks.
SOURCES = [
    "numpy/plain.npz",
    "numpy/slash_keys.npz",
    "numpy/compressed.npz",
    "numpy/many_20k.npz",
    "numpy/struct.npy",
    "numpy/nested_struct.npy",
    "numpy/auto_v2_big_header.npy",
    "numpy/U.npy",
    "numpy/S.npy",
    "numpy/dt64.npy",
    "numpy/td64.npy",
    "numpy/longdouble.npy",
    "numpy/void.npy",
    "torch/zip_all_dtypes.pt",
    "torch/zip_new_dtypes.pt",
    "torch/zip_views.pt",
    "torch/zip_tied.pt",
    "torch/zip_0d_empty.pt",
    "torch/zip_numpy.pt",
    "torch/zip_nested_python.pt",
    "torch/zip_training_ckpt.pt",
    "torch/legacy_all_dtypes.pt",
    "cerebras/v2.10.0/gpt_small.mdl",
    "cerebras/v2.4.0/gpt_small.mdl",
    "cerebras/errors/no_success.mdl",
    "keras/k2_full.h5",
    "keras/k3_seq_compiled.keras",
    "keras/k3_bfloat16.weights.h5",
    "flax/flax_model.msgpack",
    "gguf/types_v3.gguf",
    "gguf/bigendian.gguf",
]

# Dtypes that NumPy lacks: the dtype with the same bits, and its number of elements for one element.
BITS = {
    "bfloat16": ("<u2", 1),
    "float8_e4m3fn": ("|u1", 1),
    "float8_e4m3fnuz": ("|u1", 1),
    "float8_e5m2": ("|u1", 1),
    "float8_e5m2fnuz": ("|u1", 1),
    "float8_e8m0fnu": ("|u1", 1),
    "float4_e2m1fn_x2": ("|u1", 1),
    "complex32": ("<f2", 2),
    "bits16": ("<u2", 1),
    "bits8": ("|u1", 1),
    "bits1x8": ("|u1", 1),
    "bits4x2": ("|u1", 1),
    "qint8": ("|i1", 1),
    "quint8": ("|u1", 1),
    "qint32": ("<i4", 1),
}

# Kinds that an archive of arrays can't store. The conversion must report them as lost.
LEFT_OUT = ("none", "object", "dict", "list", "tuple", "set")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    wrong = []
    compared = 0
    for source in SOURCES:
        try:
            count, differences = check(options, source)
            compared += count
            wrong += [f"{source}: {difference}" for difference in differences]
        except Exception as error:
            wrong.append(f"{source}: {type(error).__name__}: {error}")
    wrong += outside(options)
    print("\n".join(wrong[:40]) or f"{len(SOURCES)} NumPy archives: {compared} arrays are equal")
    return 1 if wrong else 0


def check(options, source):
    output = options.work / (source.replace("/", "_") + ".npz")
    report = run(options, "convert", "--json", "--lossy", "--force", FIXTURES / source, output)
    lost = {key for loss in json.loads(report)["losses"] if not loss["harmless"] for key in loss["keys"]}
    entries = json.loads(run(options, "manifest", "--json", FIXTURES / source))["entries"]
    with zipfile.ZipFile(output) as members:
        assert members.testzip() is None, "a checksum is wrong"
        # The comment of the archive, which NumPy ignores, says that the source is incomplete.
        assert members.comment.startswith(b"statelens.incomplete: ") == ("no_success" in source), "wrong comment"
    # One fixture is a record with many fields. Its header is longer than NumPy's default limit.
    archive = np.load(output, allow_pickle=False, max_header_size=1 << 20)
    names = set(archive.files)
    differences = []
    compared = 0
    for entry in entries:
        key = entry["key"] or "arr_0"
        if entry["kind"] in LEFT_OUT:
            if key not in lost:
                differences.append(f"{key} is lost, but not reported")
            continue
        if entry["kind"] == "sparse":
            names -= {f"{key}.{part}" for part in entry["parts"]}
            continue
        if key not in names:
            differences.append(f"{key} is missing")
            continue
        names.discard(key)
        compared += 1
        difference = differs(archive[key], entry)
        if difference:
            differences.append(f"{key}: {difference}")
        if entry.get("dtype") in BITS and key not in lost:
            differences.append(f"{key} is lost, but not reported")
    differences += [f"{name} is not in the source" for name in sorted(names)]
    return compared, differences


# Keys that would leave the folder when an archive is unpacked, and their escaped names.
OUTSIDE = {
    "../../x": "%2E%2E/%2E%2E/x",
    "/etc/x": "%2Fetc/x",
    "C:\\x": "C%3A%5Cx",
    "a/../x": "a/%2E%2E/x",
    "a\x00\nb": "a%00%0Ab",
    "plain": "plain",
}


def outside(options):
    source, output = options.work / "outside.safetensors", options.work / "outside.npz"
    entries = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * index, 4 * index + 4]}
        for index, name in enumerate(OUTSIDE)
    }
    head = json.dumps(entries).encode()
    source.write_bytes(len(head).to_bytes(8, "little") + head + np.arange(len(entries), dtype="<f4").tobytes())
    output.unlink(missing_ok=True)
    if "names that are not safe as file names" not in refused(options, "convert", source, output):
        return ["names that are not safe as file names are written without --lossy"]
    run(options, "convert", "--lossy", source, output)
    archive = np.load(output, allow_pickle=False)
    actual = {name: float(archive[name][0]) for name in archive.files}
    expected = {safe: float(index) for index, safe in enumerate(OUTSIDE.values())}
    folder = options.work / "unpacked"
    zipfile.ZipFile(output).extractall(folder)
    missing = [name for name in expected if not (folder / f"{name}.npy").is_file()]
    return [f"{actual} instead of {expected}"] * (actual != expected) + [f"{name} is not unpacked" for name in missing]


def refused(options, *arguments):
    command = [str(options.statelens), *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return process.stderr + process.stdout if process.returncode else ""


def differs(array, entry):
    kind = entry["kind"]
    if kind in ("tensor", "ndarray"):
        shape, dtype = list(entry["shape"]), entry["dtype"]
        if dtype in BITS:
            code, parts = BITS[dtype]
            expected = np.dtype(code)
            shape += [parts] if parts > 1 else []
            if array.dtype != expected:
                return f"is {array.dtype}, should be {expected}"
        elif array.dtype.name != dtype:
            return f"is {array.dtype.name}, should be {dtype}"
        if list(array.shape) != shape:
            return f"has shape {array.shape}, should be {shape}"
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return None if digest == entry["sha256"] else "the bytes differ"
    if kind == "bytes":
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        return None if digest == entry["sha256"] else "the bytes differ"
    if array.shape != ():
        return f"has shape {array.shape}, should have none"
    value = array[()]
    if kind == "complex":
        actual = [python_float(value.real), python_float(value.imag)]
    elif kind == "float":
        actual = python_float(value)
    elif kind == "bool":
        actual = bool(value)
    else:
        actual = str(value)
    expected = entry["value"]
    # NumPy's strings lose NULs at their end, which the conversion reports as a loss.
    expected = expected.rstrip("\0") if kind == "str" else expected
    return None if actual == expected else f"is {actual!r}, should be {expected!r}"


def python_float(value):
    return repr(float(value))


def run(options, *arguments):
    process = subprocess.run([options.statelens, *map(str, arguments)], capture_output=True, timeout=120)
    # A manifest is complete, with status 1, even if the checkpoint is damaged.
    if process.returncode != 0 and not (arguments[0] == "manifest" and process.stdout):
        raise RuntimeError(process.stderr.decode(errors="replace").strip())
    return process.stdout.decode()


sys.exit(main())
