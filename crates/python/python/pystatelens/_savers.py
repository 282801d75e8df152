"""Writes state dicts from Python."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from . import _native
from ._checkpoint import Checkpoint
from ._convert import native_options
from ._reports import Progress
from ._makers import Opaque, SparseTensor
from ._tensor import Tensor
from .errors import RefusedError, UnsupportedError
from .reports import ConvertReport

if TYPE_CHECKING:
    import numpy as np


class SupportsWrite(Protocol):
    """A binary file object that can be written."""

    def write(self, data: bytes, /) -> object: ...


def save(
    state_dict: Any,
    path: str | os.PathLike[str] | SupportsWrite,
    *,
    to: str | None = None,
    version: str | None = None,
    compression: str | None = None,
    lossy: bool = False,
    replace: bool = False,
    sync: bool = False,
    progress: Progress | None = None,
) -> ConvertReport:
    """Writes a state dict with torch tensors, NumPy arrays or tensors of open checkpoints, in the format
    `to` or that of the extension of `path`, which may be a binary file object. Takes options of `convert`
    and returns its report. Tensors of open checkpoints are read when they are written.

    >>> import numpy as np
    >>> import pystatelens
    >>> report = pystatelens.save({"weight": np.ones((2, 3))}, "new.safetensors")
    >>> pystatelens.open("new.safetensors")["weight"].shape
    (2, 3)
    """
    options = native_options(
        to=to, version=version, compression=compression, lossy=lossy, replace=replace, sync=sync
    )
    if isinstance(state_dict, Checkpoint):
        collected = state_dict._native
    else:
        collected = _native.collect(state_dict, described)
    place = (collected, "", None)
    if isinstance(path, (str, os.PathLike)):
        return _loaded(_native.convert(place, os.fspath(path), options, progress))
    # A file object: the file is complete before anything is written to it.
    if to is None:
        what, advice = "a file object has no extension", "Choose the format with `to`."
        raise RefusedError(f"{what}. {advice}", what, "refused", advice=advice)
    with tempfile.TemporaryDirectory() as folder:
        report = _loaded(_native.convert(place, os.path.join(folder, "checkpoint"), options, progress))
        if len(report["files"]) > 1:
            what = f"this writes {len(report['files'])} files, and a file object takes one"
            raise RefusedError(f"{what}.", what, "refused")
        with open(report["files"][0], "rb") as file:
            shutil.copyfileobj(file, path, 1 << 20)
    return {**report, "files": [], "output": ""}


def _loaded(text: str) -> ConvertReport:
    loaded: ConvertReport = json.loads(text)
    return loaded


def described(value: Any, key: str) -> Any:
    """Returns a value as the extension module takes it: the dtype, shape and memory of a tensor or array,
    a dtype, the name of a device, or the items of a mapping. `key` is its key, for errors."""
    if isinstance(value, Tensor):
        return value._native, value._is_array, value._quantizer
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(value, torch.Tensor):
            return _tensor(value, key)
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch."), None
        if isinstance(value, torch.device):
            return str(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return _array(value, key)
        if isinstance(value, numpy.dtype):
            return _numpy_dtype(value, key), value.byteorder == ">"
    if isinstance(value, SparseTensor):
        return value.layout, value.dtype, value.shape, value.parts, value.coalesced
    if isinstance(value, Opaque):
        return value.module, value.name, value.text
    if isinstance(value, Mapping):
        return list(value.items())
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise _unsupported(key, f"a value of type {kind} can't be written", "Leave it out, or write its parts.")


def _array(value: Any, key: str) -> Any:
    import numpy as np

    if isinstance(value, np.ma.MaskedArray):
        advice = "Write `array.filled()`, or `array.data` and `array.mask`."
        raise _unsupported(key, "a masked array can't be written", advice)
    array = np.asarray(value)
    dtype = _numpy_dtype(array.dtype, key)
    dense = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    memory = dense.reshape(-1).view("uint8").data if dense.nbytes else b""
    return dtype, array.shape, memory, isinstance(value, np.generic)


def _numpy_dtype(dtype: np.dtype[Any], key: str) -> Any:
    """Returns the name or code of a dtype; for records, the size, and the name, dtype, offset, shape and title
    of each field."""
    if dtype.hasobject:
        advice = "Write numbers, or convert the items to strings: `array.astype(str)`."
        raise _unsupported(key, f"dtype {dtype} holds Python objects, which can't be written", advice)
    if dtype.fields is not None:
        fields = []
        for name in dtype.names or ():
            field, offset, *titles = dtype.fields[name]
            item, shape = field.subdtype or (field, ())
            fields.append((name, _numpy_dtype(item, key), offset, shape, str(titles[0]) if titles else ""))
        return dtype.itemsize, fields
    # Those of ml_dtypes, which other libraries define, have names only.
    defined_elsewhere = 2
    return dtype.name if dtype.isbuiltin == defined_elsewhere else dtype.str[1:]


def _tensor(tensor: Any, key: str) -> Any:
    import torch

    if tensor.layout != torch.strided:
        return _sparse(tensor, key)
    if tensor.device.type == "meta":
        raise _unsupported(key, "a tensor on the device `meta` has no values", "Load its values first.")
    if tensor.is_quantized:
        return _quantized(tensor)
    address, view = tensor.untyped_storage()._cdata, tensor.detach()
    if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        # The address of a copy is that of its original, so that tied tensors stay tied.
        bits = (tensor.is_conj(), tensor.is_neg())
        address = hash((address, *bits, tensor.storage_offset(), tensor.stride())) % 2**63
        view = view.cpu().resolve_conj().resolve_neg().contiguous()
    storage = torch.empty(0, dtype=torch.uint8).set_(view.untyped_storage())
    memory = storage.numpy().data
    dtype = str(tensor.dtype).removeprefix("torch.")
    return dtype, tuple(view.shape), address, memory, view.storage_offset(), view.stride()


def _sparse(tensor: Any, key: str) -> Any:
    import torch

    name = str(tensor.layout).removeprefix("torch.")
    coalesced = tensor.is_coalesced() if tensor.layout == torch.sparse_coo else None
    names = {
        "sparse_coo": ("_indices", "_values"),
        "sparse_csr": ("crow_indices", "col_indices", "values"),
        "sparse_bsr": ("crow_indices", "col_indices", "values"),
        "sparse_csc": ("ccol_indices", "row_indices", "values"),
        "sparse_bsc": ("ccol_indices", "row_indices", "values"),
    }
    if name not in names:
        raise _unsupported(key, f"a tensor with layout {name} can't be written", "Write its parts.")
    detached = tensor.detach()
    parts = {part.removeprefix("_"): getattr(detached, part)() for part in names[name]}
    return name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), parts, coalesced


def _quantized(tensor: Any) -> Any:
    import torch

    integers = tensor.detach().cpu().int_repr().contiguous()
    scales: tuple[Any, ...]
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scales = (tensor.q_scale(), tensor.q_zero_point())
    else:
        points = (tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points())
        scales = (*points, tensor.q_per_channel_axis())
    memory = integers.reshape(-1).view(torch.uint8).numpy().data if integers.numel() else b""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return dtype, tuple(tensor.shape), memory, scales


def _unsupported(key: str, what: str, advice: str) -> UnsupportedError:
    what = f"`{key}`: {what}" if key else what
    return UnsupportedError(f"{what}. {advice}", what, "unsupported", advice=advice)
