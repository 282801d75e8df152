"""Finds the dtypes of NumPy and torch for the dtypes of tensors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from .errors import StatelensError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    import torch as pytorch

    from ._native import Tensor as NativeTensor

DType: TypeAlias = Union[str, type[Any], "np.dtype[Any]", "pytorch.dtype"]
"""A dtype: its name, or an object of torch, NumPy or ml_dtypes."""

_CAST = "Read it in another one: `tensor.cast(\"float32\")`."
_BYTES = "Read its bytes: `tensor.tobytes()`."

# Dtypes of torch that NumPy lacks, and the NumPy dtypes that hold their elements.
_AS_BYTES = {
    "float4_e2m1fn_x2": "uint8",
    "bits1x8": "uint8",
    "bits2x4": "uint8",
    "bits4x2": "uint8",
    "bits8": "uint8",
    "bits16": "uint16",
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "quint4x2": "uint8",
    "quint2x4": "uint8",
}

# Results of `_named`, by name and size in bytes.
_KNOWN: dict[tuple[str, int], np.dtype[Any] | None] = {}

# Dtypes that NumPy exports through DLPack.
EXPORTED = frozenset(
    ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    + ["float16", "float32", "float64", "complex64", "complex128"]
)


def dtype_name(dtype: DType) -> str:
    """Returns the name of a dtype: `float16` for `torch.float16`, `numpy.float16` and
    `numpy.dtype("float16")`."""
    if isinstance(dtype, type):
        return dtype.__name__
    return str(dtype).removeprefix("torch.")


def casts(cast: DType | Mapping[str, DType] | None) -> list[str]:
    """Returns rules `PATTERN=DTYPE`. A single dtype gets the pattern `*`."""
    if cast is None:
        return []
    rules = cast if isinstance(cast, Mapping) else {"*": cast}
    return [f"{pattern}={dtype_name(dtype)}" for pattern, dtype in rules.items()]


def numpy_dtype(native: NativeTensor) -> np.dtype[Any]:
    """Returns the dtype of `Tensor.numpy`. Dtypes that NumPy lacks come from ml_dtypes."""
    import numpy as np

    if native.is_blocks:
        raise unsupported(native, "NumPy")
    descr = native.numpy_type
    if descr is not None:
        described: np.dtype[Any] = np.dtype(descr).newbyteorder("<")
        return described
    key = native.dtype, native.itemsize
    if key not in _KNOWN:
        _KNOWN[key] = _named(*key)
    dtype = _KNOWN[key]
    if dtype is None:
        raise unsupported(native, "NumPy")
    return dtype


def numpy_object(name: str, descr: Any, is_big: bool) -> np.dtype[Any]:
    """Returns the dtype of NumPy that a file holds as a value, by its name, or by an argument of
    `numpy.dtype` if only NumPy has it."""
    import numpy as np

    known: np.dtype[Any] | None = np.dtype(descr) if descr is not None else _named(name, -1)
    if known is not None and is_big:
        return known.newbyteorder(">")
    if known is None:
        what = f"NumPy has no dtype {name}"
        raise UnsupportedError(f"{what}.", what, "unsupported")
    return known


def _named(name: str, itemsize: int) -> np.dtype[Any] | None:
    """Returns the dtype of NumPy or ml_dtypes with a name of torch, or None."""
    import numpy as np

    if name == "complex32":
        return np.dtype([("real", "<f2"), ("imag", "<f2")])
    if name.startswith(("bfloat16", "float8", "float6", "float4_e2m1fn", "int2", "int4", "int1")):
        scalar_type = _ml_dtype(name)
        if scalar_type is not None and itemsize in (-1, np.dtype(scalar_type).itemsize):
            known: np.dtype[Any] = np.dtype(scalar_type)
            return known
    try:
        dtype: np.dtype[Any] = np.dtype(_AS_BYTES.get(name, name)).newbyteorder("<")
    except TypeError:
        return None
    return dtype


def torch_dtype(native: NativeTensor) -> Any:
    """Returns the dtype of `Tensor.torch`."""
    import torch

    dtype = None if native.numpy_type is not None else getattr(torch, native.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise unsupported(native, "torch")
    return dtype


def unsupported(native: NativeTensor, library: str) -> UnsupportedError:
    """Returns the error for a dtype that a library lacks."""
    what = f"`{native.key}` has dtype {native.dtype}, which {library} does not have"
    advice = _CAST
    try:
        native.cast("float32")
    except StatelensError:
        advice = "Read it into NumPy: `tensor.numpy()`." if native.numpy_type is not None else _BYTES
    return UnsupportedError(f"{what}. {advice}", what, "unsupported", advice=advice)


def _ml_dtype(name: str) -> Any:
    # ml_dtypes is optional: torch reads such elements too, and `cast` converts them.
    try:
        return getattr(importlib.import_module("ml_dtypes"), name, None)
    except ImportError as error:
        what = f"dtype {name} needs the package ml_dtypes"
        advice = f"Install it: `pip install ml_dtypes`. {_CAST}"
        raise UnsupportedError(f"{what}. {advice}", what, "unsupported", advice=advice) from error
