"""Writes state dicts from Python."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import _native
from ._convert import native_options
from ._reports import Progress
from ._tensor import Tensor
from .errors import UnsupportedError


def save(
    state_dict: Any,
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    version: str | None = None,
    compression: str | None = None,
    lossy: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes a state dict with torch tensors, NumPy arrays or tensors of open checkpoints, in the format
    `to` or that of the extension of `path`. Takes options of `convert` and returns its report.

    >>> import numpy as np
    >>> import pystatelens
    >>> report = pystatelens.save({"weight": np.ones((2, 3))}, "new.safetensors")
    >>> pystatelens.open("new.safetensors")["weight"].shape
    (2, 3)
    """
    options = native_options(
        to=to, version=version, compression=compression, lossy=lossy, replace=replace
    )
    collected = _native.collect(state_dict, described)
    report = _native.convert(collected, "", os.fspath(path), options, progress)
    loaded: dict[str, Any] = json.loads(report)
    return loaded


def described(value: Any) -> Any:
    """Returns a value as the extension module takes it: the dtype, shape and bytes of a tensor or array, or
    the name of a dtype or device."""
    if isinstance(value, Tensor):
        return value.dtype, value.shape, value.tobytes(), False, False
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(value, torch.Tensor):
            return _tensor(value)
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch."), False
        if isinstance(value, torch.device):
            return str(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        dense = numpy.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
        memory = memoryview(dense.reshape(-1).view("uint8"))
        return array.dtype.name, array.shape, memory, True, isinstance(value, numpy.generic)
    if numpy is not None and isinstance(value, numpy.dtype):
        return value.name, True
    what = f"a value of type {type(value).__module__}.{type(value).__qualname__} can't be written"
    advice = "Leave it out, or write its parts."
    raise UnsupportedError(f"{what}. {advice}", what, "unsupported", advice=advice)


def _tensor(tensor: Any) -> Any:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized:
        what = "sparse and quantised tensors can't be written from Python"
        advice = "Write their parts."
        raise UnsupportedError(f"{what}. {advice}", what, "unsupported", advice=advice)
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    memory = memoryview(dense.reshape(-1).view(torch.uint8).numpy())
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), memory, False, False
