"""Reads one tensor, and one slice of it, with pystatelens and with the real libraries, in one run:

    python benches/python.py FOLDER [MEGABYTES]

Both open the file each time, in turns, in the same process; the fastest of several runs counts, and the
files are in the system's cache. A ratio below 1 means that pystatelens is faster. Then it reads files
of 8 and of 32 such tensors, one after the other, and prints the peak memory of each process.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pystatelens

TENSORS = 8
RUNS = 7
KEY = "layers.5.weight"
ROWS = slice(1000, 1010)


def main():
    folder, megabytes = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 256
    folder.mkdir(parents=True, exist_ok=True)
    made = files(folder, megabytes)
    print("| file | read | by | its time | pystatelens | ratio |\n|---|---|---|--:|--:|--:|")
    for name, what, library, theirs in cases():
        path = made[name]
        whole = what == "a tensor"

        def ours():
            tensor = pystatelens.open(path)[KEY]
            return (tensor if whole else tensor[ROWS]).numpy()

        compare(name, what, library, lambda: theirs(path), ours)
    print("\n| file | size | peak memory |\n|---|--:|--:|")
    for times in (1, 4):
        for name, path in files(folder, megabytes, TENSORS * times).items():
            peak = subprocess.run(
                [sys.executable, __file__, "--walk", path], capture_output=True, text=True, check=True
            )
            print(f"| {name} | {path.stat().st_size / 1e6:.0f} MB | {peak.stdout.strip()} MB |")


def files(folder, megabytes, tensors=TENSORS):
    """Files of random float32: eight tensors of that size together, or more of the same."""
    import torch

    columns = 1024
    rows = megabytes * 1_000_000 // TENSORS // columns // 4
    safetensors = folder / f"{megabytes}x{tensors}.safetensors"
    made = {"safetensors": safetensors, ".pt": safetensors.with_suffix(".pt"), ".mdl": safetensors.with_suffix(".mdl")}
    if not all(path.exists() for path in made.values()):
        random = np.random.default_rng(1)
        arrays = (random.random((rows, columns), "float32") for _ in range(tensors))
        state = {f"layers.{i}.weight": torch.from_numpy(array) for i, array in enumerate(arrays)}
        for path in made.values():
            pystatelens.save(state, path, replace=True)
    return made


def cases():
    yield from of_safetensors()
    yield from of_torch()
    yield from of_h5py()
    yield from of_cstorch()


def of_safetensors():
    from safetensors import safe_open

    def whole(path):
        with safe_open(path, "numpy") as file:
            return file.get_tensor(KEY)

    def part(path):
        with safe_open(path, "numpy") as file:
            return file.get_slice(KEY)[ROWS]

    yield "safetensors", "a tensor", "safetensors", whole
    yield "safetensors", "10 rows", "safetensors", part


def of_torch():
    import torch

    def whole(path):
        return torch.load(path, weights_only=True)[KEY].numpy()

    def mapped(path):
        return torch.load(path, weights_only=True, mmap=True)[KEY].clone().numpy()

    def part(path):
        return torch.load(path, weights_only=True, mmap=True)[KEY][ROWS].clone().numpy()

    yield ".pt", "a tensor", "torch", whole
    yield ".pt", "a tensor", "torch, mmap", mapped
    yield ".pt", "10 rows", "torch, mmap", part


def of_h5py():
    import h5py
    import hdf5plugin  # noqa: F401  registers the LZ4 filter

    def whole(path):
        with h5py.File(path, "r") as file:
            return file[KEY][()]

    def part(path):
        with h5py.File(path, "r") as file:
            return file[KEY][ROWS]

    yield ".mdl", "a tensor", "h5py", whole
    yield ".mdl", "10 rows", "h5py", part


def of_cstorch():
    try:
        import cerebras.pytorch as cstorch
    except ImportError:
        print("cerebras.pytorch is not in this environment", file=sys.stderr)
        return
    yield ".mdl", "a tensor", "cerebras.pytorch", lambda path: cstorch.load(path)[KEY].numpy()
    yield ".mdl", "10 rows", "cerebras.pytorch", lambda path: cstorch.load(path)[KEY][ROWS].numpy()


def compare(name, what, library, theirs, ours):
    assert np.array_equal(theirs(), ours())
    best = [float("inf"), float("inf")]
    for _ in range(RUNS):
        for side, read in enumerate((theirs, ours)):
            start = time.perf_counter()
            read()
            best[side] = min(best[side], time.perf_counter() - start)
    print(f"| {name} | {what} | {library} | {best[0] * 1e3:.2f} ms | {best[1] * 1e3:.2f} ms | {best[1] / best[0]:.2f} |")


def walk(path):
    for _, tensor in pystatelens.open(path).tensors():
        tensor.numpy()
    # Not `ru_maxrss`: a new process inherits that of the one that started it.
    status = Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1000)


if __name__ == "__main__":
    walk(sys.argv[2]) if sys.argv[1] == "--walk" else main()
