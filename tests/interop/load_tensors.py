"""Loads files with one of the real libraries and tells every value by its flat key.

    python load_tensors.py JOBS.json RESULTS.jsonl

JOBS is a list of `{"id", "how", "path"}`; a result is `{"id", "values"}` or `{"id", "error"}`, a line
each. A value is `{"dtype", "shape", "sha256"}` for tensors and arrays (of the logical values, C
order, little-endian), or `{"value"}` for what is none. How:

- `cstorch`: `cerebras.pytorch.load`; `weights_only`: `torch.load(weights_only=True)`;
- `torch_index`, `safetensors_index`: every shard that an index names, and that each holds what it says;
- `safetensors`: `safetensors.torch.load_file`; `numpy`: `numpy.load(allow_pickle=False)`;
- `tensorflow`: `tf.train.load_checkpoint`, every variable.
"""

import contextlib
import hashlib
import io
import json
import sys
import warnings
from pathlib import Path

import numpy

warnings.simplefilter("ignore")


def main(jobs_path, results_path):
    with open(jobs_path) as file:
        jobs = json.load(file)
    with open(results_path, "w") as results:
        for job in jobs:
            result = {"id": job["id"]}
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    result["values"] = HOW[job["how"]](Path(job["path"]))
            except Exception as error:
                result["error"] = f"{type(error).__name__}: {error}"
            results.write(json.dumps(result) + "\n")
            results.flush()


def array(value):
    """A numpy array, with the name that torch has for its dtype."""
    value = numpy.asarray(value)
    kind, bits = value.dtype.kind, value.dtype.itemsize * 8
    name = {"S": f"bytes{bits}", "U": f"str{bits}"}.get(kind, value.dtype.name)
    order = value.dtype.newbyteorder("<") if kind in "iufcU" else value.dtype
    dense = numpy.ascontiguousarray(value, order)
    if kind == "O":
        return {"value": [item.decode("latin-1") for item in value.reshape(-1)], "shape": list(value.shape)}
    return {"dtype": name, "shape": list(value.shape), "sha256": hashlib.sha256(dense.tobytes()).hexdigest()}


def tensor(value):
    import torch

    dense = value.detach().resolve_conj().resolve_neg().contiguous()
    raw = dense.reshape(-1).view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)
    name = str(value.dtype).removeprefix("torch.")
    return {"dtype": name, "shape": list(value.shape), "sha256": hashlib.sha256(raw.numpy().tobytes()).hexdigest()}


def flat(value):
    """Every leaf of nested dicts and lists, its path joined by dots."""
    import torch

    values, waiting = {}, [((), value)]
    while waiting:
        path, value = waiting.pop()
        # cstorch reads objects and arrays when they are asked for.
        value = value.value if type(value).__name__ in ("DeferredObject", "DeferredNumpyArray") else value
        key = ".".join(path)
        if isinstance(value, dict) and value:
            waiting += [((*path, str(name)), child) for name, child in value.items()]
        elif isinstance(value, (list, tuple)) and value:
            waiting += [((*path, str(index)), child) for index, child in enumerate(value)]
        elif isinstance(value, (set, frozenset)) and value:
            # Members have no order of their own.
            waiting += [((*path, str(index)), child) for index, child in enumerate(sorted(value, key=repr))]
        elif isinstance(value, torch.Tensor):
            values[key] = tensor(value)
        elif isinstance(value, (numpy.ndarray, numpy.generic)):
            values[key] = array(value)
        else:
            values[key] = {"value": plain(value)}
    return values


def plain(value):
    return str(value) if type(value) in (int, str) else repr(value)


def load_cstorch(path):
    import cerebras.pytorch as cstorch

    return flat(cstorch.load(path))


def load_weights_only(path):
    import torch

    return flat(torch.load(path, map_location="cpu", weights_only=True))


def load_safetensors(path):
    from safetensors.torch import load_file

    return {key: tensor(value) for key, value in load_file(path).items()}


def load_index(path, load):
    index = json.loads(path.read_text())
    values, total = {}, 0
    for shard in sorted(set(index["weight_map"].values())):
        held = load(path.parent / shard)
        named = {key for key, name in index["weight_map"].items() if name == shard}
        if named - set(held):
            raise ValueError(f"{shard} does not hold {sorted(named - set(held))[:3]}")
        if set(held) & set(values):
            raise ValueError(f"{shard} repeats {sorted(set(held) & set(values))[:3]}")
        values.update(held)
        total += (path.parent / shard).stat().st_size
    if not 0 <= index["metadata"]["total_size"] <= total:
        raise ValueError(f"total_size is {index['metadata']['total_size']}, and the shards have {total} bytes")
    return values


def load_numpy(path):
    with numpy.load(path, allow_pickle=False) as archive:
        return {key: array(archive[key]) for key in archive.files}


def load_tensorflow(path):
    import tensorflow

    reader = tensorflow.train.load_checkpoint(str(path))
    return {key: array(reader.get_tensor(key)) for key in reader.get_variable_to_shape_map()}


HOW = {
    "cstorch": load_cstorch,
    "weights_only": load_weights_only,
    "safetensors": load_safetensors,
    "safetensors_index": lambda path: load_index(path, load_safetensors),
    "torch_index": lambda path: load_index(path, load_weights_only),
    "numpy": load_numpy,
    "tensorflow": load_tensorflow,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
