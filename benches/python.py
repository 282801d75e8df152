"""Compares pystatelens with the real libraries at reading a tensor, a slice and the state dict:

    python benches/python.py FOLDER [MEGABYTES]

Each run opens the file, in the same process, with the file in the system's cache. The libraries take turns of five runs,
because the first run of a turn pays for memory that the other library gave back to the system. The fastest run counts.
A ratio below 1 means that pystatelens is faster. A second table has the peak memory of processes that read files of 8
and of 32 such tensors, one tensor at a time.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pystatelens

TENSORS = 8
TURNS, RUNS = 6, 5
KEYS = [f"layers.{i}.weight" for i in range(TENSORS)]
KEY = KEYS[5]
ROWS = slice(1000, 1010)
OURS = {
    "a tensor": lambda path: pystatelens.open(path)[KEY].numpy(),
    "10 rows": lambda path: pystatelens.open(path)[KEY][ROWS].numpy(),
    "all, to torch": lambda path: pystatelens.open(path).state_dict(),
    "all, to NumPy": lambda path: pystatelens.open(path).state_dict(framework="numpy"),
}


def main():
    folder, megabytes = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 256
    folder.mkdir(parents=True, exist_ok=True)
    paths = files(folder, megabytes)
    print("| file | read | by | its time | pystatelens | ratio |\n|---|---|---|--:|--:|--:|")
    for name, what, library, theirs in cases():
        compare(name, what, library, lambda: theirs(paths[name]), lambda: OURS[what](paths[name]))
    print("\n| file | size | peak memory |\n|---|--:|--:|")
    for times in (1, 4):
        for name, path in files(folder, megabytes, TENSORS * times).items():
            peak = subprocess.run(
                [sys.executable, __file__, "--walk", path], capture_output=True, text=True, check=True
            )
            print(f"| {name} | {path.stat().st_size / 1e6:.0f} MB | {peak.stdout.strip()} MB |")


def files(folder, megabytes, tensors=TENSORS):
    """Returns files of random float32, and writes missing ones. Eight tensors have `megabytes` together."""
    import torch

    columns = 1024
    rows = megabytes * 1_000_000 // TENSORS // columns // 4
    safetensors = folder / f"{megabytes}x{tensors}.safetensors"
    paths = {"safetensors": safetensors, ".pt": safetensors.with_suffix(".pt"), ".mdl": safetensors.with_suffix(".mdl")}
    if not all(path.exists() for path in paths.values()):
        random = np.random.default_rng(1)
        arrays = (random.random((rows, columns), "float32") for _ in range(tensors))
        state = {f"layers.{i}.weight": torch.from_numpy(array) for i, array in enumerate(arrays)}
        for path in paths.values():
            pystatelens.save(state, path, replace=True)
    return paths


def cases():
    yield from safetensors_cases()
    yield from torch_cases()
    yield from h5py_cases()
    yield from cstorch_cases()


def safetensors_cases():
    from safetensors import safe_open
    from safetensors.numpy import load_file as load_numpy
    from safetensors.torch import load_file as load_torch

    def whole(path):
        with safe_open(path, "numpy") as file:
            return file.get_tensor(KEY)

    def part(path):
        with safe_open(path, "numpy") as file:
            return file.get_slice(KEY)[ROWS]

    yield "safetensors", "a tensor", "safetensors", whole
    yield "safetensors", "10 rows", "safetensors", part
    yield "safetensors", "all, to NumPy", "safetensors", load_numpy
    yield "safetensors", "all, to torch", "safetensors", lambda path: cloned(load_torch(path))


def torch_cases():
    import torch

    def load(path, mmap=False):
        return torch.load(path, weights_only=True, mmap=mmap)

    yield ".pt", "a tensor", "torch", lambda path: load(path)[KEY].numpy()
    yield ".pt", "a tensor", "torch, mmap", lambda path: load(path, True)[KEY].clone().numpy()
    yield ".pt", "10 rows", "torch, mmap", lambda path: load(path, True)[KEY][ROWS].clone().numpy()
    yield ".pt", "all, to torch", "torch", load
    yield ".pt", "all, to torch", "torch, mmap", lambda path: cloned(load(path, True))


def h5py_cases():
    import h5py
    import hdf5plugin  # noqa: F401  registers the LZ4 filter

    def read(path, key=KEY, part=()):
        with h5py.File(path, "r") as file:
            return file[key][part]

    def everything(path):
        with h5py.File(path, "r") as file:
            return {key: file[key][()] for key in KEYS}

    yield ".mdl", "a tensor", "h5py", read
    yield ".mdl", "10 rows", "h5py", lambda path: read(path, part=ROWS)
    yield ".mdl", "all, to NumPy", "h5py", everything


def cstorch_cases():
    try:
        import cerebras.pytorch as cstorch
    except ImportError:
        print("cerebras.pytorch is not in this environment", file=sys.stderr)
        return
    yield ".mdl", "a tensor", "cerebras.pytorch", lambda path: cstorch.load(path)[KEY].numpy()
    yield ".mdl", "10 rows", "cerebras.pytorch", lambda path: cstorch.load(path)[KEY][ROWS].numpy()
    # `clone` of a tensor from cstorch reads its values later.
    read = lambda path: {key: tensor.numpy() for key, tensor in cstorch.load(path).items()}
    yield ".mdl", "all, to NumPy", "cerebras.pytorch", read


def cloned(state):
    """Copies tensors, so that mapped ones are read."""
    return {key: tensor.clone() for key, tensor in state.items()}


def compare(name, what, library, theirs, ours):
    assert_equal(theirs(), ours())
    best = [float("inf"), float("inf")]
    for _ in range(TURNS):
        for side, read in enumerate((theirs, ours)):
            for _ in range(RUNS):
                start = time.perf_counter()
                read()
                best[side] = min(best[side], time.perf_counter() - start)
    print(f"| {name} | {what} | {library} | {best[0] * 1e3:.3g} ms | {best[1] * 1e3:.3g} ms | {best[1] / best[0]:.2f} |")


def assert_equal(theirs, ours):
    if isinstance(theirs, dict):
        assert theirs.keys() == ours.keys()
        for key in theirs:
            assert_equal(theirs[key], ours[key])
    else:
        assert np.array_equal(theirs, ours)


def walk(path):
    for _, tensor in pystatelens.open(path).tensors():
        tensor.numpy()
    # A new process inherits `ru_maxrss` from its parent.
    status = Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1000)


if __name__ == "__main__":
    walk(sys.argv[2]) if sys.argv[1] == "--walk" else main()
