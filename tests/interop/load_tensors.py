"""Loads files with the real libraries, and prints the values by flat key.

    python load_tensors.py JOBS.json RESULTS.jsonl

JOBS is a list of `{"id", "how", "path"}`. A result is `{"id", "values"}` or `{"id", "error"}`, one per line. A value is
`{"dtype", "shape", "sha256"}` for tensors and arrays (hash of the logical values, C order, little-endian), and
`{"value"}` for others. Values of `how`:

- `cstorch`: `cerebras.pytorch.load`; `weights_only`: `torch.load(weights_only=True)`;
- `torch_index`, `safetensors_index`: all shards of an index. Each shard must have the keys that the index lists for it;
- `safetensors`: `safetensors.torch.load_file`; `numpy`: `numpy.load(allow_pickle=False)`;
- `tensorflow`: all variables with `tf.train.load_checkpoint`.
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
    """Describes a NumPy array, with torch's name of its dtype."""
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
    """Describes all leaves of nested dicts and lists, by their paths joined with dots."""
    import torch

    values, waiting = {}, [((), value)]
    while waiting:
        path, value = waiting.pop()
        # cstorch reads objects and arrays on the first access.
        value = value.value if type(value).__name__ in ("DeferredObject", "DeferredNumpyArray") else value
        key = ".".join(path)
        if isinstance(value, dict) and value:
            waiting += [((*path, str(name)), child) for name, child in value.items()]
        elif isinstance(value, (list, tuple)) and value:
            waiting += [((*path, str(index)), child) for index, child in enumerate(value)]
        elif isinstance(value, (set, frozenset)) and value:
            # Sets have no order.
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
        tensors = load(path.parent / shard)
        listed = {key for key, name in index["weight_map"].items() if name == shard}
        if listed - set(tensors):
            raise ValueError(f"{shard} does not have {sorted(listed - set(tensors))[:3]}")
        if set(tensors) & set(values):
            raise ValueError(f"{shard} repeats {sorted(set(tensors) & set(values))[:3]}")
        values.update(tensors)
        total += (path.parent / shard).stat().st_size
    if not 0 <= index["metadata"]["total_size"] <= total:
        raise ValueError(f"total_size is {index['metadata']['total_size']}, but the shards have {total} bytes")
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
