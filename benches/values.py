"""Measures numpy for `cargo xtask bench values`.

    python values.py inputs FOLDER    writes FOLDER/values-f32.safetensors and values-bf16.safetensors: 16 matrices of
                                      normally distributed numbers, 2 GB each
    python values.py sum FILE         prints the seconds for reading all values and adding them
    python values.py mapped FILE      the same with a memory-mapped file
    python values.py five FILE        prints the seconds for reading and five passes: isnan, min, max, mean, std

FILE is a .safetensors or a .mdl, which h5py reads. The seconds exclude the start of the interpreter.
"""

import json
import sys
import time

import numpy as np

MATRICES = 16
ROWS, COLUMNS = {4: 4_000, 2: 8_000}, 7_813


def inputs(folder):
    import ml_dtypes

    generator = np.random.default_rng(1)
    for name, tag, dtype in [("f32", "F32", np.dtype(np.float32)), ("bf16", "BF16", np.dtype(ml_dtypes.bfloat16))]:
        shape = [ROWS[dtype.itemsize], COLUMNS]
        size = shape[0] * shape[1] * dtype.itemsize
        entries = {
            f"model.layers.{at}.weight": {"dtype": tag, "shape": shape, "data_offsets": [at * size, (at + 1) * size]}
            for at in range(MATRICES)
        }
        head = json.dumps(entries).encode()
        head += b" " * (-len(head) % 8)
        with open(f"{folder}/values-{name}.safetensors", "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            for _ in range(MATRICES):
                values = generator.standard_normal(shape, np.float32) * np.float32(0.02)
                file.write(values.astype(dtype).tobytes())


def tensors(path, mapped):
    if path.endswith(".mdl"):
        import h5py
        import hdf5plugin  # noqa: F401

        datasets = []
        with h5py.File(path) as file:
            file.visititems(lambda _, it: datasets.append(it) if isinstance(it, h5py.Dataset) and it.ndim == 2 else None)
            for dataset in datasets:
                yield dataset[...]
        return
    import ml_dtypes

    dtypes = {"F32": np.float32, "BF16": ml_dtypes.bfloat16}
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
    for entry in head.values():
        start = 8 + length + entry["data_offsets"][0]
        dtype, shape = np.dtype(dtypes[entry["dtype"]]), entry["shape"]
        if mapped:
            yield np.memmap(path, dtype, "r", start, tuple(shape))
        else:
            yield np.fromfile(path, dtype, shape[0] * shape[1], offset=start).reshape(shape)


def plain_sum(values):
    # numpy's own sum of bfloat16 is too inexact, so convert to float32 first.
    return values.sum(dtype=np.float32) if values.dtype == np.float32 else values.astype(np.float32).sum()


def five(values):
    if values.dtype != np.float32:
        values = values.astype(np.float32)
    return np.isnan(values).sum(), values.min(), values.max(), values.mean(), values.std()


operation, path = sys.argv[1:]
if operation == "inputs":
    inputs(path)
else:
    work = five if operation == "five" else plain_sum
    start = time.perf_counter()
    for tensor in tensors(path, operation == "mapped"):
        work(tensor)
    print(time.perf_counter() - start)
