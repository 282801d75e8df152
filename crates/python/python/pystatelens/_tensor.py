"""Tensors, which read their values on request."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._dtypes import EXPORTED, DType, dtype_name, numpy_dtype, torch_dtype, unsupported

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch as pytorch

    from ._native import Tensor as NativeTensor

_Item = SupportsIndex | slice | EllipsisType


class Tensor:
    """A tensor of a checkpoint, or a slice of one. It holds the location of its bytes, not the bytes.

    >>> import pystatelens
    >>> weight = pystatelens.open("model.safetensors")["layers.0.weight"]
    >>> weight
    Tensor('layers.0.weight', float32, (4, 6))
    >>> weight[1:3, ..., ::2].numpy()
    array([[ 6.,  8., 10.],
           [12., 14., 16.]], dtype=float32)
    """

    __slots__ = ("_native", "_quantizer")

    def __init__(self, native: NativeTensor, quantizer: Any = None) -> None:
        self._native = native
        self._quantizer = quantizer

    @property
    def key(self) -> str:
        """The flat key."""
        return self._native.key

    @property
    def dtype(self) -> str:
        """The name of the dtype in torch or, if torch lacks it, in NumPy."""
        return self._native.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension, in elements."""
        return self._native.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._native.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._native.size

    @property
    def nbytes(self) -> int:
        """The size of the elements in memory, in bytes."""
        return self._native.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, index: _Item | tuple[_Item, ...]) -> Tensor:
        """Returns a slice without reading it. The slice reads only the bytes that it needs."""
        per_channel = self._quantizer is not None and len(self._quantizer) > 2
        return Tensor(self._native.slice(index), None if per_channel else self._quantizer)

    def __iter__(self) -> Iterator[Tensor]:
        """Yields the slices of the first dimension, without reading them."""
        return (self[index] for index in range(len(self)))

    # `in` raises a TypeError. Python would otherwise compare slices instead of elements.
    __contains__: None = None

    def cast(self, dtype: DType) -> Tensor:
        """Returns the tensor in another dtype: a name, or a dtype of torch or NumPy. Its elements are
        rounded when they are read.

        >>> import pystatelens
        >>> pystatelens.open("model.safetensors")["layers.0.weight"].cast("bfloat16").dtype
        'bfloat16'
        """
        return Tensor(self._native.cast(dtype_name(dtype)))

    def numpy(self) -> npt.NDArray[Any]:
        """Reads the elements into a new array. Dtypes that NumPy lacks come from `ml_dtypes`. Quantised
        elements are the stored integers."""
        import numpy as np

        return np.ndarray(self.shape, numpy_dtype(self._native), _read(self._native))

    def torch(self) -> pytorch.Tensor:
        """Reads the elements into a new torch tensor."""
        import torch

        dtype = torch_dtype(self._native)
        if self._native.dtype.startswith(("qint", "quint")):
            return self._quantized(dtype)
        if math.prod(self.shape) == 0:
            return torch.empty(self.shape, dtype=dtype)
        whole = torch.frombuffer(_read(self._native), dtype=torch.uint8)
        return whole.view(dtype).reshape(self.shape)

    def tobytes(self) -> bytearray:
        """Reads the elements as bytes in C order, little-endian."""
        return self._native.read()

    def item(self) -> Any:
        """Reads the only element as a Python object.

        >>> import pystatelens
        >>> weight = pystatelens.open("model.safetensors")["layers.0.weight"]
        >>> weight[0, 2].item(), float(weight[0, 2])
        (2.0, 2.0)
        """
        if self.size != 1:
            raise ValueError(f"{self!r} has {self.size:,} elements, not one")
        return self.numpy().item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor in a file can't become an array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """Reads the elements for `from_dlpack` of another library."""
        exported = self.numpy() if self.dtype in EXPORTED else self.torch()
        return exported.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        cpu = 1
        return (cpu, 0)

    def __repr__(self) -> str:
        return f"Tensor({self.key!r}, {self.dtype}, {self.shape})"

    def _quantized(self, dtype: pytorch.dtype) -> pytorch.Tensor:
        import torch

        integers = torch.from_numpy(self.numpy().copy())
        match (self.dtype, self._quantizer):
            case ("qint8" | "quint8" | "qint32", (float(scale), zero_point)):
                make = torch._make_per_tensor_quantized_tensor
                return make(integers, scale, zero_point)
            case ("qint8" | "quint8" | "qint32", (scales, zero_points, axis)):
                parts = (Tensor(scales).torch(), Tensor(zero_points).torch())
                return torch._make_per_channel_quantized_tensor(integers, *parts, axis)
            case _:
                raise unsupported(self._native, "this constructor of torch")


_PIECE = 64 << 20
"""Number of bytes between two checks for Ctrl-C."""


def _read(native: NativeTensor) -> Any:
    """Reads the elements into new memory. If they are contiguous in a file, it uses uninitialised memory of
    NumPy, which is faster than a bytearray."""
    location = native.in_file() if hasattr(os, "preadv") else None
    if location is None:
        return native.read()
    try:
        import numpy as np
    except ImportError:
        return native.read()
    file, offset = location
    memory = np.empty(native.nbytes, "uint8")
    rest = memory.data
    try:
        while rest and (count := os.preadv(file.fileno(), [rest[:_PIECE]], offset)):
            rest, offset = rest[count:], offset + count
    except OSError:
        pass
    # After an error, `native.read` raises the exception that describes it.
    return native.read() if rest else memory
