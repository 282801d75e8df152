"""Loads files with the libraries of this interpreter, and describes the loaded values.

    python load.py JOBS.json RESULTS.jsonl

JOBS is a list of `{"id", "how", "path", "cast"}`. `cast` is empty, or the dtype for casts of floating-point tensors after
loading. A result is `{"id", "rows"}` or `{"id", "error"}`, one per line. Values of `how`:

- `cstorch`: `cerebras.pytorch.load`;
- `torch`: `torch.load(weights_only=False)`, with placeholders for missing classes. For our own fixtures only;
- `weights_only`: `torch.load(weights_only=True)`;
- `h5py`: reads all datasets and attributes, with one row per object.
"""

import contextlib
import io
import json
import pickle
import sys
import types
import warnings

import describe
import torch

warnings.simplefilter("ignore")


def main(jobs_path, results_path):
    with open(jobs_path) as file:
        jobs = json.load(file)
    with open(results_path, "w") as results:
        for job in jobs:
            result = {"id": job["id"]}
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    loaded = HOW[job["how"]](job["path"])
                    result["rows"] = loaded if job["how"] == "h5py" else describe.describe(loaded, job["cast"])
            except Exception as error:
                result["error"] = f"{type(error).__name__}: {error}"
            results.write(json.dumps(result) + "\n")
            results.flush()


def load_cstorch(path):
    import cerebras.pytorch as cstorch

    return cstorch.load(path)


def load_weights_only(path):
    return torch.load(path, map_location="cpu", weights_only=True)


def load_torch(path):
    return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_PICKLE)


def load_h5py(path):
    import h5py
    import hdf5plugin  # noqa: F401  registers the LZ4 filter

    rows = []

    def visit(name, node):
        attributes = {key: _value_text(node.attrs[key]) for key in node.attrs}
        row = {"attributes": len(attributes)}
        if isinstance(node, h5py.Dataset):
            data = node[()]
            row["dataset"] = [str(node.dtype), list(node.shape or []), _value_text(data)[:64]]
        rows.append([[name], row])

    with h5py.File(path, "r") as file:
        visit("/", file)
        file.visititems(visit)
    return rows


def _value_text(value):
    return value.tobytes().hex() if hasattr(value, "tobytes") else repr(value)


class _Unpickler(pickle.Unpickler):
    """Replaces a class that is not installed with a placeholder of the same name."""

    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            base = _BASES.get(name, _Placeholder)
            return _PLACEHOLDERS.setdefault((module, name), type(name, (base,), {"__module__": module}))


class _Placeholder:
    def __new__(cls, *arguments, **named):
        return super().__new__(cls)

    def __init__(self, *arguments, **named):
        pass

    def __setstate__(self, state):
        pass


class _Named(tuple):
    def __new__(cls, *items):
        return super().__new__(cls, items)


_PLACEHOLDERS = {}
# Base classes of the classes in our own fixtures.
_BASES = {"AttributeDict": dict, "Sub": torch.Tensor, "NT": _Named, "Pt": _Named}
_PICKLE = types.ModuleType("pickle_with_placeholders")
_PICKLE.__dict__.update(pickle.__dict__)
_PICKLE.Unpickler = _Unpickler
_PICKLE.load = lambda file, **options: _Unpickler(file, **options).load()

HOW = {"cstorch": load_cstorch, "torch": load_torch, "weights_only": load_weights_only, "h5py": load_h5py}

if __name__ == "__main__":
    main(*sys.argv[1:])
