"""Creates the objects of a state dict that are not built into Python, such as tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._dtypes import numpy_object
from ._tensor import Origin, Tensor
from .errors import UnsupportedError

if TYPE_CHECKING:
    from ._native import Tensor as NativeTensor


@dataclass(frozen=True)
class Opaque:
    """A placeholder for an object of a class that Statelens does not create, because it runs no code from a
    checkpoint."""

    module: str
    """The module of its class."""
    name: str
    """The name of its class, or of the function that returns it."""
    text: str | None = None
    """The `repr` of the object, if Statelens knows its class."""

    def __repr__(self) -> str:
        return self.text or f"<{self.module}.{self.name}>"


@dataclass(frozen=True)
class SparseTensor:
    """The dense parts of a sparse tensor of torch."""

    layout: str
    """`sparse_coo`, `sparse_csr`, `sparse_csc`, `sparse_bsr` or `sparse_bsc`."""
    dtype: str
    """The dtype of the values."""
    shape: tuple[int, ...]
    """The shape of the whole tensor."""
    parts: dict[str, Tensor]
    """The parts by torch's names."""
    coalesced: bool | None = None
    """Whether the indices are sorted and unique."""

    def torch(self) -> Any:
        """Reads the parts into a sparse tensor of torch."""
        import torch

        parts = {name: part.torch() for name, part in self.parts.items()}
        if self.layout == "sparse_coo":
            tensor = torch.sparse_coo_tensor(parts["indices"], parts["values"], self.shape)
            return tensor._coalesced_(bool(self.coalesced))
        by_row = "crow_indices" in parts
        rows = parts["crow_indices" if by_row else "ccol_indices"]
        columns = parts["col_indices" if by_row else "row_indices"]
        layout = getattr(torch, self.layout)
        size = torch.Size(self.shape)
        return torch.sparse_compressed_tensor(rows, columns, parts["values"], size, layout=layout)


class Maker:
    """Creates instances of `Tensor`, which read their values later. `origin` says how their checkpoint is
    opened again."""

    shares_memory = False
    """Whether tensors that are views of one storage share memory, by `memory` and `view`."""

    def __init__(self, origin: Origin | None = None) -> None:
        self.origin = origin

    def tensor(self, native: NativeTensor, quantizer: Any) -> Any:
        return Tensor(native, quantizer, origin=self.origin)

    def wrapped(self, tensor: Any, is_parameter: bool, requires_grad: bool) -> Any:
        """Returns a tensor that was a parameter, or that requires a gradient."""
        return tensor

    def array(self, native: NativeTensor, scalar: bool) -> Any:
        tensor = Tensor(native, is_array=True, origin=self.origin)
        if not scalar:
            return tensor
        try:
            return tensor.numpy()[()]
        except ImportError:
            # Without NumPy, a scalar of it is a number of Python.
            return tensor.item()

    def sparse(
        self,
        layout: str,
        dtype: str,
        shape: tuple[int, ...],
        parts: dict[str, NativeTensor],
        coalesced: bool | None,
    ) -> Any:
        tensors = {name: Tensor(part) for name, part in parts.items()}
        return SparseTensor(layout, dtype, shape, tensors, coalesced)

    def dtype(self, name: str, is_big: bool | None, descr: Any) -> Any:
        """Returns a dtype as a value. `is_big` is the byte order of NumPy's, and None for torch's."""
        return name

    def device(self, name: str) -> Any:
        return name

    def opaque(self, module: str, name: str, text: str | None) -> Any:
        return Opaque(module, name, text)


class NumpyMaker(Maker):
    """Reads tensors into NumPy arrays."""

    def tensor(self, native: NativeTensor, quantizer: Any) -> Any:
        return Tensor(native).numpy()

    def array(self, native: NativeTensor, scalar: bool) -> Any:
        array = Tensor(native).numpy()
        return array[()] if scalar else array

    def dtype(self, name: str, is_big: bool | None, descr: Any) -> Any:
        return name if is_big is None else numpy_object(name, descr, is_big)


class TorchMaker(NumpyMaker):
    """Reads tensors into torch tensors, and arrays into NumPy arrays, as `torch.load` does."""

    shares_memory = True

    def tensor(self, native: NativeTensor, quantizer: Any) -> Any:
        return Tensor(native, quantizer).torch()

    def memory(self, native: NativeTensor) -> Any:
        """Reads the bytes of a storage."""
        return Tensor(native).torch()

    def view(
        self,
        native: NativeTensor,
        memory: Any,
        dtype: str,
        shape: tuple[int, ...],
        first: int,
        strides: tuple[int, ...],
    ) -> Any:
        """Returns a view of the memory of a storage; `first` is the number of its first element."""
        import torch

        own = getattr(torch, dtype, None)
        if not isinstance(own, torch.dtype):
            return self.tensor(native, None)
        return torch.empty(0, dtype=own).set_(memory.untyped_storage(), first, shape, strides)

    def wrapped(self, tensor: Any, is_parameter: bool, requires_grad: bool) -> Any:
        import torch

        if not isinstance(tensor, torch.Tensor):
            return tensor
        # Others can't have a gradient, whatever the file says.
        requires_grad = requires_grad and (tensor.is_floating_point() or tensor.is_complex())
        if is_parameter:
            return torch.nn.Parameter(tensor, requires_grad)
        return tensor.requires_grad_(requires_grad)

    def sparse(
        self,
        layout: str,
        dtype: str,
        shape: tuple[int, ...],
        parts: dict[str, NativeTensor],
        coalesced: bool | None,
    ) -> Any:
        return super().sparse(layout, dtype, shape, parts, coalesced).torch()

    def dtype(self, name: str, is_big: bool | None, descr: Any) -> Any:
        if is_big is not None:
            return super().dtype(name, is_big, descr)
        import torch

        return getattr(torch, name, name)

    def device(self, name: str) -> Any:
        import torch

        return torch.device(name)


class _Skipped:
    """Stands for a tensor that can't be read."""


_SKIPPED = _Skipped()


def skipping(maker: Maker) -> Maker:
    """Returns a maker that makes a mark of tensors that can't be read."""

    def skip(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any) -> Any:
            try:
                return make(*arguments)
            except UnsupportedError:
                return _SKIPPED

        return made

    for name in ("tensor", "array", "sparse"):
        setattr(maker, name, skip(getattr(maker, name)))
    return maker


def without_skipped(state: Any) -> Any:
    """Removes the marks of `skipping` from dicts and lists. In a tuple, `None` would change its meaning, so the mark stays."""
    if state is _SKIPPED:
        return None
    todo, seen = [state], set()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            for key in [key for key, item in value.items() if item is _SKIPPED]:
                del value[key]
            todo.extend(value.values())
        elif isinstance(value, list):
            value[:] = [item for item in value if item is not _SKIPPED]
            todo.extend(value)
        elif isinstance(value, (tuple, set, frozenset, deque)):
            todo.extend(value)
    return state


def maker(framework: str) -> Maker:
    """Returns the maker of a framework."""
    match framework:
        case "torch":
            return TorchMaker()
        case "numpy":
            return NumpyMaker()
        case "lazy":
            return Maker()
    what = f"there is no framework {framework!r}"
    advice = "Expected torch, numpy or lazy."
    raise UnsupportedError(f"{what}. {advice}", what, "unsupported", advice=advice)
