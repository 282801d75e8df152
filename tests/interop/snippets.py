"""Runs the Python code of `statelens show --code`, and compares the values that it reads with our hashes.

    python snippets.py --statelens BINARY --work FOLDER [--cerebras PYTHON] [--tensorflow PYTHON] [--jax PYTHON]

Takes the first tensors of fixtures in each format, whole and sliced, with each supported library, and some tensors of
every other fixture that Statelens opens, whole. Libraries that this
environment lacks run with the given interpreters; without an interpreter, they are skipped and counted. The exit status
is 1 if a snippet fails or reads different values.
"""

import argparse
import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "target/fixtures"

SOURCES = [
    "torch/zip_training_ckpt.pt",
    "torch/zip_all_dtypes.pt",
    "torch/zip_tied.pt",
    "torch/legacy_module_state_dict.pt",
    "safetensors/order.safetensors",
    "safetensors/unicode.safetensors",
    "hf_sharded_safetensors",
    "numpy/plain.npz",
    "numpy/compressed.npz",
    "numpy/f4.npy",
    "numpy/fortran.npy",
    "hdf5/contiguous.h5",
    "hdf5/floats_e.h5",
    "hdf5/sb3.h5",
    "cerebras/v2.10.0/gpt_small.mdl",
    "cerebras/v2.10.0/dtypes.mdl",
    "cerebras/v2.10.0/keys_odd.mdl",
    "cerebras/v2.10.0/containers.mdl",
    "tf/saver_v2_dtypes/all.index",
    "reports/show_code/dict.npy",
    "reports/show_code/tensorlayer.npz",
    "reports/show_code/train.pth",
    "reports/show_code/posix.pt",
]
# Fixtures that the libraries refuse, or whose values the libraries read in another way.
REFUSED = {
    "attacks*/**": "hostile",
    "**/x_*": "damaged",
    "**/errors/*": "damaged",
    "cerebras/*/keys_collide*": "two values have one flat key",
    "cerebras/*/numpy_scalars.mdl": "read as numbers and texts of Python",
    "cerebras/*-special/*link*": "the library needs files of another computer",
    "cerebras/compat/synthetic_*": "cerebras-pytorch 2 does not read releases 1",
    "tf_crafted/bad_crc/*": "a wrong checksum, which only verification finds",
    "tf/raw_names/*": "a name that is not UTF-8",
    "tf/raw_string_slices/*": "TensorFlow does not join slices of strings",
}
# Library and dtype of values that the library returns in another form: objects, and numbers in packed rows.
OTHER_FORM = {("tensorflow", "bytes"), ("torch", "quint")}
LIBRARIES = ["torch", "safetensors", "numpy", "numpy.memmap", "h5py", "jax", "cstorch", "tensorflow"]
ELSEWHERE = {"cstorch": "cerebras", "tensorflow": "tensorflow", "jax": "jax"}
TENSORS = 12
TENSORS_OF_OTHERS = 2
# Slices, with the minimum number of dimensions. Few libraries support negative steps directly.
SLICES = [(1, "[1:]"), (1, "[-1]"), (1, "[::-2]"), (2, "[0:2, -4:]"), (2, "[..., ::-1]"), (2, "[0, ::3]"), (2, "[1:1]"), (3, "[0, :, -1]"), (3, "[:, 0, ::-3]")]

# Prints the hash of the tensor's bytes (C order, little-endian), as in our manifest.
REPORT = """
import hashlib, sys
def raw(t):
    if hasattr(t, "detach"):
        import torch
        # A single value is contiguous with any stride, but `view` needs a stride of 1.
        if t.is_quantized:
            return t.int_repr().numpy().tobytes()
        t = t.detach().clone(memory_format=torch.contiguous_format)
        if t.dtype == torch.bool or not t.dtype.is_complex and not t.dtype.is_floating_point:
            try:
                return t.numpy().tobytes()
            except (TypeError, RuntimeError):
                pass
        return bytes(t.reshape(-1).view(torch.uint8).tolist()) if t.numel() else b""
    import numpy as np
    t = np.asarray(t)
    return np.ascontiguousarray(t).astype(t.dtype.newbyteorder("<"), copy=False).tobytes()
print(hashlib.sha256(raw(tensor)).hexdigest())
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statelens", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--cerebras", type=Path)
    parser.add_argument("--tensorflow", type=Path)
    parser.add_argument("--jax", type=Path)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    failures, jobs, skipped = [], {}, 0
    chosen = [FIXTURES / source for source in SOURCES]
    others = [path for path in sorted(FIXTURES.rglob("*")) if path.is_file() and path not in chosen]
    others = [path for path in others if not any(matches(path.relative_to(FIXTURES), pattern) for pattern in REFUSED)]
    for path in chosen + cubes(options.work / "cubes") + others:
        source = path.relative_to(FIXTURES if path.is_relative_to(FIXTURES) else options.work)
        if not path.exists():
            failures.append(f"{source} is missing")
            continue
        found = of_other(options, path) if path in others else snippets(options, path)
        for library, code, expected, key in found:
            python = {"cerebras": options.cerebras, "tensorflow": options.tensorflow, "jax": options.jax}.get(ELSEWHERE.get(library), Path(sys.executable))
            if python is None:
                skipped += 1
                continue
            jobs.setdefault(str(python), []).append((f"{source}: {key} with {library}", code, expected))
    runs = {}
    for python, snippets_of_python in jobs.items():
        # One process for each environment: the libraries take seconds to import.
        script = options.work / "all.py"
        lines = ["results = []", f"for name, code in {[(name, code + REPORT) for name, code, _ in snippets_of_python]!r}:"]
        lines += ["    import io, contextlib, traceback", "    out = io.StringIO()", "    try:", "        with contextlib.redirect_stdout(out):"]
        lines += ["            exec(code, {})", "        results.append((name, out.getvalue().strip()))"]
        lines += ["    except Exception as error:", "        results.append((name, 'failed: ' + repr(error)[:200]))"]
        lines += ["import json", "print('RESULTS ' + json.dumps(results))"]
        script.write_text("\n".join(lines))
        process = subprocess.run([python, script], capture_output=True, text=True)
        lines = [line for line in process.stdout.splitlines() if line.startswith("RESULTS ")]
        if not lines:
            failures.append(f"{python}: {process.stderr[-500:]}")
            continue
        results = dict(json.loads(lines[0][len("RESULTS "):]))
        for name, _, expected in snippets_of_python:
            library = name.rsplit(" ", 1)[1]
            runs[library] = runs.get(library, 0) + 1
            if results[name] != expected:
                failures.append(f"{name}: {results[name]}, expected {expected}")
    print("; ".join(f"{library}: {runs[library]} snippets" for library in LIBRARIES if library in runs) + (f"; {skipped} not run" if skipped else ""))
    missing = [library for library in LIBRARIES if library not in runs and (library not in ELSEWHERE or not skipped)]
    failures += [f"no snippet used {library}" for library in missing]
    for failure in failures:
        print("FAILED", failure)
    sys.exit(bool(failures))


def matches(path, pattern):
    """Returns whether a path has a pattern, in which `**` stands for any folders."""
    return fnmatch.fnmatchcase(str(path), pattern.replace("**/", "*"))


def cubes(folder):
    """Writes files of tensors with three dimensions, with the real libraries."""
    import h5py
    import numpy as np
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    cube = np.arange(3 * 4 * 7, dtype="<f4").reshape(3, 4, 7)
    tensors = {"cube": torch.from_numpy(cube), "short": torch.from_numpy(cube).bfloat16(), "flags": torch.from_numpy(cube % 3 == 0)}
    torch.save(tensors, folder / "cubes.pt")
    save_file(tensors, folder / "cubes.safetensors")
    np.savez(folder / "cubes.npz", cube=cube, fortran=np.asfortranarray(cube))
    np.save(folder / "cube.npy", cube)
    with h5py.File(folder / "cubes.h5", "w") as file:
        file["cube"] = cube
        file.create_dataset("chunked", data=cube, chunks=(2, 2, 3), compression="gzip")
    return sorted(folder.iterdir())


def snippets(options, path):
    """Yields the library, the code, the hash and the key for some tensors of a file and for slices of them."""
    entries = [entry for entry in json.loads(statelens(options, "manifest", "--json", path))["entries"] if entry.get("sha256") and entry.get("shape") is not None]
    listed = {entry["key"]: entry for entry in json.loads(statelens(options, "ls", "--json", path))["entries"]}
    selected = [entry for entry in entries if entry["key"] in listed and listed[entry["key"]].get("dtype")][:TENSORS]
    for entry in selected:
        yield from snippets_of_key(options, path, entry["key"], entry["sha256"])
    sliced = [entry for entry in selected if entry["shape"] and entry["shape"][0] > 1]
    # The first two tensors, and two others with the highest number of dimensions.
    most = max((len(entry["shape"]) for entry in sliced), default=0)
    sliced = sliced[:2] + [entry for entry in sliced[2:] if len(entry["shape"]) == most][:2]
    raw = options.work / "slice.raw"
    for entry in sliced:
        for key in [entry["key"] + slice for least, slice in SLICES if len(entry["shape"]) >= least]:
            # The manifest has no hashes of slices.
            statelens(options, "export", path, key, raw, "--force")
            yield from snippets_of_key(options, path, key, hashlib.sha256(raw.read_bytes()).hexdigest())


def of_other(options, path):
    """Yields the same for some tensors of a file, if it is a checkpoint, with the libraries that the command names."""
    manifest = subprocess.run([options.statelens, "manifest", "--json", path], capture_output=True, text=True)
    if manifest.returncode != 0:
        return
    entries = [entry for entry in json.loads(manifest.stdout)["entries"] if entry.get("sha256") and entry.get("dtype")]
    for entry in entries[: TENSORS_OF_OTHERS - 1] + entries[-1:]:
        for library, *snippet in snippets_of_key(options, path, entry["key"], entry["sha256"]):
            if not any(library == other and entry["dtype"].startswith(dtype) for other, dtype in OTHER_FORM):
                yield library, *snippet


def snippets_of_key(options, path, key, expected):
    for library in LIBRARIES:
        command = [options.statelens, "show", path, key, f"--code={library}"]
        process = subprocess.run(command, capture_output=True, text=True)
        if process.returncode == 0:
            yield library, process.stdout, expected, key


def statelens(options, *arguments):
    return subprocess.run([options.statelens, *map(str, arguments)], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
