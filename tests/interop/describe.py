"""Describes loaded values as JSON, to compare libraries that run in different interpreters.

`describe(value)` returns rows `[path, node]`, each container before its items. A path is a list of steps: `$KEY` for a
string key, `repr` for another key, `#3` for a position, `{}` for a member of a set. Sets have no order, so their members
are sorted. A node is a dict with `kind` and fields of this kind. Tensors and arrays have the SHA-256 of their logical
values (C order, little-endian), and

- `tie`: the path of the first tensor that is the same object, or the same view of the same storage;
- `storage`: the path of the first tensor with the same storage.
"""

import hashlib
import numbers

import numpy
import torch


def describe(value, cast=""):
    """Returns the rows of a value. Floating-point tensors are cast to the dtype `cast`, unless it is empty."""
    return _Describer(getattr(torch, cast) if cast else None).rows(value)


class _Describer:
    def __init__(self, cast):
        self.cast = cast
        self.open = {}
        self.ties = {}
        self.storages = {}
        # References to all objects, because `id` of a freed object may be reused.
        self.alive = []

    def rows(self, value):
        rows = []
        self._visit(value, [], rows)
        return rows

    def _visit(self, value, path, rows):
        if type(value).__name__ in ("DeferredObject", "DeferredNumpyArray"):
            deferred, value = value, value.value
            self.alive += [deferred, value]
            if isinstance(value, numpy.ndarray):
                rows.append([path, self._array(value, path, id(deferred))])
                return
        parts = _parts(value)
        if parts is None:
            rows.append([path, self._leaf(value, path)])
            return
        node, children = parts
        if id(value) in self.open:
            rows.append([path, {"kind": "cycle", "to": self.open[id(value)]}])
            return
        self.open[id(value)] = path
        rows.append([path, node])
        if node["kind"] in ("set", "frozenset"):
            members = []
            for _, child in children:
                below = []
                self._visit(child, path + ["{}"], below)
                members.append(below)
            for below in sorted(members, key=repr):
                rows += below
        else:
            for step, child in children:
                self._visit(child, path + [step], rows)
        del self.open[id(value)]

    def _leaf(self, value, path):
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, numpy.ndarray):
            return self._array(value, path, id(value))
        if isinstance(value, numpy.generic):
            node = {**self._array(numpy.asarray(value), path, object()), "kind": "npscalar"}
            return {**node, "value": repr(float(value))} if isinstance(value, numpy.float64) else node
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return {"kind": type(value).__name__, "value": str(value)}
        if type(value) in _PLAIN:
            return {"kind": _PLAIN[type(value)], "value": _plain(value)}
        return {"kind": "object", "type": _dotted(type(value)), "repr": _stable_repr(value)}

    def _tensor(self, tensor, path):
        node = {"kind": "tensor", "dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape)}
        if type(tensor).__name__ not in ("Tensor", "Parameter") and hasattr(tensor, "_materialize"):
            identity = storage = ("object", id(tensor))
            self.alive.append(tensor)
            tensor = tensor._materialize()
        elif tensor.layout != torch.strided:
            return self._sparse(tensor, node)
        elif tensor.device.type == "meta":
            return {**node, "kind": "meta"}
        else:
            if type(tensor) is not torch.Tensor:
                node["class"] = _dotted(type(tensor))
            if tensor.requires_grad:
                node["requires_grad"] = True
            untyped = tensor.untyped_storage()
            self.alive.append(untyped)
            storage = ("storage", untyped._cdata)
            identity = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype,
                        tensor.is_conj(), tensor.is_neg())
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if tensor.is_quantized:
            node["quantized"] = _quantizer(tensor)
            tensor = tensor.int_repr()
        if self.cast and tensor.is_floating_point():
            tensor = tensor.to(self.cast)
            node["dtype"] = str(tensor.dtype)[6:]
        data = _tensor_bytes(tensor)
        return {**node, "nbytes": len(data), "sha256": _sha256(data),
                "tie": self.ties.setdefault(identity, path),
                "storage": self.storages.setdefault(storage, path)}

    def _sparse(self, tensor, node):
        if tensor.layout == torch.sparse_coo:
            parts = {"indices": tensor._indices(), "values": tensor._values()}
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = {"crow_indices": tensor.crow_indices(), "col_indices": tensor.col_indices(), "values": tensor.values()}
        elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = {"ccol_indices": tensor.ccol_indices(), "row_indices": tensor.row_indices(), "values": tensor.values()}
        else:
            return {**node, "kind": "object", "type": str(tensor.layout)}
        described = {name: {**_plain_tensor(part)} for name, part in parts.items()}
        return {**node, "kind": "sparse", "layout": str(tensor.layout)[6:], "parts": described}

    def _array(self, array, path, identity):
        self.alive.append(array)
        if array.dtype == object:
            return {"kind": "object_array", "shape": list(array.shape), "repr": [repr(x) for x in array.ravel()]}
        data = _array_bytes(array)
        return {"kind": "ndarray", "dtype": _array_dtype(array.dtype), "shape": list(array.shape),
                "nbytes": len(data), "sha256": _sha256(data), "tie": self.ties.setdefault(identity, path)}


_PLAIN = {bool: "bool", int: "int", float: "float", complex: "complex", str: "str",
          bytes: "bytes", bytearray: "bytearray", type(None): "none"}


def _plain(value):
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray)):
        return {"nbytes": len(value), "sha256": _sha256(bytes(value))}
    if isinstance(value, complex):
        return [repr(value.real), repr(value.imag)]
    if isinstance(value, (bool, str)):
        return value
    return repr(value)


def _parts(value):
    """Returns the node and the children of a container, or None for a leaf."""
    kind = _dotted(type(value))
    if isinstance(value, (torch.Size, tuple)):
        return {"kind": "tuple", "class": kind}, _positions(value)
    if isinstance(value, (list,)) or kind == "collections.deque":
        return {"kind": "list", "class": kind}, _positions(value)
    if isinstance(value, (set, frozenset)):
        return {"kind": type(value).__name__}, _positions(value)
    if isinstance(value, dict):
        return {"kind": "dict", "class": kind}, [
            ("$" + key if isinstance(key, str) else _key(key), child) for key, child in value.items()
        ]
    return None


def _key(key):
    # `repr` of a NumPy integer has its type, but the key of a state dict is the number.
    return repr(int(key)) if isinstance(key, numbers.Integral) and not isinstance(key, bool) else repr(key)


def _positions(items):
    return [(f"#{index}", item) for index, item in enumerate(items)]


def _plain_tensor(tensor):
    data = _tensor_bytes(tensor)
    return {"dtype": str(tensor.dtype)[6:], "shape": list(tensor.shape), "sha256": _sha256(data)}


def _tensor_bytes(tensor):
    if tensor.numel() == 0:
        return b""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _array_bytes(array):
    array = numpy.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.byteorder != "|":
        array = array.astype(array.dtype.newbyteorder("<"))
    elif array.dtype.names:
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes()


def _array_dtype(dtype):
    return str(dtype.newbyteorder("=")) if dtype.names is None else str(dtype.newbyteorder("<").descr)


def _quantizer(tensor):
    if tensor.qscheme() == torch.per_tensor_affine:
        return ["per_tensor_affine", repr(tensor.q_scale()), tensor.q_zero_point()]
    return [str(tensor.qscheme())[6:], tensor.q_per_channel_scales().tolist(),
            tensor.q_per_channel_zero_points().tolist(), tensor.q_per_channel_axis()]


def _stable_repr(value):
    text = repr(value)
    return None if " at 0x" in text else text


def _dotted(cls):
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _sha256(data):
    return hashlib.sha256(data).hexdigest()
