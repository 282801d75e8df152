"""Tensors, which read their values on request."""

from __future__ import annotations

import math
import mmap
import operator
import os
import struct
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from . import _native
from ._arguments import refused
from ._dtypes import EXPORTED, DType, dtype_name, numpy_dtype, torch_dtype, unsupported

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch as pytorch

    from ._native import Tensor as NativeTensor

_Item = SupportsIndex | slice | EllipsisType

Options: TypeAlias = tuple[tuple[str, ...], int | None, int | None, tuple[str, ...], bool]
"""Options for opening a checkpoint: the files that it refers to, the multiple of the limits, the disk space, the
dtypes of arrays without one, and whether layers in one tensor are taken apart."""

Origin: TypeAlias = tuple[tuple[str, ...], int | None, Options]
"""How a checkpoint is opened again: its paths or addresses, the number of bytes that may be fetched, and the
options."""

Step: TypeAlias = tuple[str, Any]
"""`slice` and an index, or `cast` and the name of a dtype."""

reopened: Callable[[Origin], Any]
"""Opens a checkpoint again. Set by `pystatelens._checkpoint`."""


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

    __slots__ = ("__weakref__", "_is_array", "_native", "_origin", "_quantizer", "_steps")

    def __init__(
        self,
        native: NativeTensor,
        quantizer: Any = None,
        is_array: bool = False,
        origin: Origin | None = None,
        steps: tuple[Step, ...] = (),
    ) -> None:
        if not isinstance(native, _native.Tensor):
            raise TypeError("a tensor is an item of a checkpoint: `pystatelens.open(path)[key]`")
        self._native = native
        self._quantizer = quantizer
        self._is_array = is_array
        self._origin = origin
        # The slices and casts that lead to it from a tensor of the checkpoint.
        self._steps = steps

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
        quantizer = None if per_channel else self._quantizer
        steps = (*self._steps, ("slice", _plain(index)))
        return Tensor(self._native.slice(index), quantizer, self._is_array, self._origin, steps)

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
        name = dtype_name(dtype)
        steps = (*self._steps, ("cast", name))
        return Tensor(self._native.cast(name), None, self._is_array, self._origin, steps)

    def numpy(self, dtype: DType | None = None, *, mmap: bool = False) -> npt.NDArray[Any]:
        """Reads the elements into a new array, cast to `dtype` if it is given. Dtypes that NumPy lacks come
        from `ml_dtypes`. Quantised elements are the stored integers.

        With `mmap`, the result is a read-only view of the file, whose pages are read when they are used: the
        fastest way to a few columns of a large matrix. As with every memory map, the process dies if another
        program shortens the file meanwhile. Raises `RefusedError` if the elements are not one run of a file on
        disk.

        >>> import pystatelens
        >>> pystatelens.open("model.safetensors")["layers.0.weight"].numpy(mmap=True)[:, 2]
        array([ 2.,  8., 14., 20.], dtype=float32)
        """
        import numpy as np

        if mmap:
            if dtype is not None:
                raise refused("a memory map has the dtype of the file", "Leave `dtype` or `mmap` out.")
            if self.size == 0:
                return np.empty(self.shape, numpy_dtype(self._native))
            mapping, offset = _mapped(self._native)
            return np.ndarray(self.shape, numpy_dtype(self._native), mapping, offset)
        if dtype is not None:
            return self.cast(dtype).numpy()
        return np.ndarray(self.shape, numpy_dtype(self._native), _read(self._native))

    def read_into(self, array: npt.NDArray[Any]) -> None:
        """Reads the elements into an array of the same shape, cast to its dtype."""
        if tuple(array.shape) != self.shape:
            raise ValueError(f"{self!r} does not fit an array of shape {tuple(array.shape)}")
        array[...] = self.numpy() if str(array.dtype) == self.dtype else self.numpy(array.dtype)

    def torch(self, *, device: Any = None, dtype: DType | None = None) -> pytorch.Tensor:
        """Reads the elements into a new torch tensor, cast to `dtype` and moved to `device` if they are
        given."""
        if dtype is not None:
            return self.cast(dtype).torch(device=device)
        if device is not None:
            return self.torch().to(device)
        import torch

        own = torch_dtype(self._native)
        if self._native.dtype.startswith(("qint", "quint")):
            return self._quantized(own)
        if math.prod(self.shape) == 0:
            return torch.empty(self.shape, dtype=own)
        whole = torch.frombuffer(_read(self._native), dtype=torch.uint8)
        return whole.view(own).reshape(self.shape)

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
        code = _CODES.get(self.dtype)
        if code is not None:
            parts = struct.unpack("<" + code, self.tobytes())
            return complex(*parts) if len(parts) > 1 else parts[0]
        if self.dtype.startswith(("bfloat16", "float8")):
            return self.cast("float32").item()
        return self.numpy().item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        value = self.item()
        if not isinstance(value, int):
            raise TypeError(f"{self!r} is not an integer")
        return value

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, operator.ne)

    def __lt__(self, other: object) -> Any:
        return self._compared(other, operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compared(other, operator.le)

    def __gt__(self, other: object) -> Any:
        return self._compared(other, operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compared(other, operator.ge)

    # By identity, as for tensors of torch.
    __hash__ = object.__hash__

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

    def _compared(self, other: object, compare: Callable[[Any, Any], Any]) -> Any:
        """Compares the only element with a number, or with the only element of another tensor."""
        is_tensor = isinstance(other, Tensor) or hasattr(other, "__array__")
        if not is_tensor and not isinstance(other, (int, float, complex, str, bytes)):
            return NotImplemented
        sizes = (self.size, math.prod(getattr(other, "shape", ())))
        if sizes != (1, 1):
            raise TypeError(
                f"{self!r} can't be compared: only tensors with one element can. "
                "Compare its values: `tensor.numpy()`."
            )
        return compare(self.item(), other.item() if is_tensor else other)  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        """Opens the checkpoint again, by its path or address."""
        return _reread, (origin_of(self._origin), self.key, self._steps)

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


_CODES = {
    "bool": "?",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "complex32": "ee",
    "complex64": "ff",
    "complex128": "dd",
}
"""The codes of numbers for `struct`, by dtype."""

_LEAST = 256 << 10
"""Number of bytes from which it takes longer to fill memory with zeros than to make one call more."""

_PIECE = 64 << 20
"""Number of bytes between two checks for Ctrl-C."""


def _read(native: NativeTensor) -> Any:
    """Reads the elements into new memory. If they are contiguous in a file, it uses uninitialised memory of
    NumPy, which is faster than a bytearray."""
    location = native.in_file() if native.nbytes >= _LEAST and hasattr(os, "preadv") else None
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


def _mapped(native: NativeTensor) -> tuple[mmap.mmap, int]:
    """Returns a memory map with the elements, and the offset of the first."""
    location = native.in_file() if hasattr(os, "preadv") else None
    if location is None:
        what = f"the elements of `{native.key}` are not one run of a file on disk"
        raise refused(what, "Read them: `tensor.numpy()`. If this is a slice, map the whole tensor and slice it.")
    file, offset = location
    before = offset % mmap.ALLOCATIONGRANULARITY
    length = before + native.nbytes
    return mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=offset - before), before


def origin_of(origin: Origin | None) -> Origin:
    """Returns how a checkpoint is opened again, or refuses to pickle it."""
    if origin is None:
        raise TypeError("only checkpoints that were opened by a path or an address can be pickled")
    return origin


def _reread(origin: Origin, key: str, steps: tuple[Step, ...]) -> Tensor:
    """Returns a tensor of a checkpoint that is opened again."""
    tensor: Tensor = reopened(origin)[key]
    for step, argument in steps:
        tensor = tensor[_index(argument)] if step == "slice" else tensor.cast(argument)
    return tensor


def _plain(index: _Item | tuple[_Item, ...]) -> Any:
    """Returns an index in a form that can be pickled; Python before 3.14 does not pickle slices of all
    objects."""
    if isinstance(index, tuple):
        return tuple(_plain(item) for item in index)
    if isinstance(index, slice):
        return ["slice", index.start, index.stop, index.step]
    return index


def _index(plain: Any) -> Any:
    if isinstance(plain, tuple):
        return tuple(_index(item) for item in plain)
    return slice(*plain[1:]) if isinstance(plain, list) else plain
