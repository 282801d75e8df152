"""Opens checkpoints."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeAlias

from . import _native
from ._arguments import Path, Size, paths, size
from ._makers import Maker, maker
from ._tensor import Tensor

if TYPE_CHECKING:
    from ._native import Checkpoint as NativeCheckpoint


class File(Protocol):
    """A binary file object of Python or fsspec."""

    def read(self, size: int, /) -> bytes | bytearray | memoryview: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...


Source: TypeAlias = str | os.PathLike[str] | File | bytes | bytearray | memoryview
"""The source of a checkpoint: a path, an address, a file object, or the bytes of a file."""

Located: TypeAlias = tuple[Any, str, int | None]
"""What the extension module opens: an open checkpoint, a path, an address or a file object; the name of the
file; and the number of bytes that may be fetched."""


class Format(NamedTuple):
    """The format of a file."""

    id: str
    """The short name, such as `cerebras-h5` or `torch-zip`. It is the same in all versions of Statelens."""
    name: str
    """The full name."""
    version: str
    """The version of the format, or an empty string."""
    producer: str
    """The program that wrote the file, or an empty string."""


class Checkpoint(Mapping[str, Any]):
    """An open checkpoint: a mapping from flat keys to tensors and plain values.

    Opening reads the structure only. A `Tensor` reads its values on request; other values are Python objects.

    >>> import pystatelens
    >>> checkpoint = pystatelens.open("trainer.pt")
    >>> list(checkpoint)
    ['model.layers.0.weight', 'model.norm', 'epoch']
    >>> checkpoint["epoch"], checkpoint["model.norm"].shape
    (3, (6,))

    A checkpoint is a context manager. Its files are closed when there are no references to it and its
    tensors.
    """

    __slots__ = ("__weakref__", "_opened")

    def __init__(self, native: NativeCheckpoint) -> None:
        if not isinstance(native, _native.Checkpoint):
            raise TypeError("a checkpoint is opened by `pystatelens.open`")
        self._opened: NativeCheckpoint | None = native

    def close(self) -> None:
        """Closes the checkpoint. Tensors obtained before can still be read."""
        self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def _native(self) -> NativeCheckpoint:
        if self._opened is None:
            raise ValueError("the checkpoint is closed")
        return self._opened

    @property
    def format(self) -> Format:
        """The format of the file."""
        return Format(*self._native.format)

    def __getitem__(self, key: str) -> Any:
        if not isinstance(key, str):
            raise KeyError(key)
        return self._native.leaf(key, _LAZY)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._native.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.keys())

    def __len__(self) -> int:
        return len(self._native)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the keys and their tensors and arrays, in file order. A tied tensor appears under each
        of its keys."""
        for key in self:
            value = self[key]
            if isinstance(value, Tensor):
                yield key, value

    def state_dict(
        self, key: str = "", *, framework: Literal["torch", "numpy", "lazy"] = "torch"
    ) -> Any:
        """Returns the nested dicts and lists below `key` (default: all), with torch tensors, NumPy arrays
        or, for `lazy`, instances of `Tensor`.

        An object that occurs several times in the checkpoint is one object in the result: tied tensors
        stay tied.

        >>> import pystatelens
        >>> pystatelens.open("trainer.pt").state_dict("model", framework="lazy")
        {'layers': {'0': {'weight': Tensor('model.layers.0.weight', float32, (4, 6))}}, 'norm': ...}
        """
        return self._native.below(key, maker(framework))

    def _repr_html_(self) -> str:
        """Returns the table of keys for notebooks, with repeated layers folded."""
        return _native.summary((self._native, "", None), "fragment", False, False, None)

    def __repr__(self) -> str:
        if self._opened is None:
            return "<Checkpoint: closed>"
        title = " ".join(part for part in (self.format.name, self.format.version) if part)
        return f"<Checkpoint: {title}, {len(self):,} keys>"


_LAZY = Maker()


def open(
    source: Source,
    *,
    with_files: Path | Iterable[Path] = (),
    max_fetch: Size | None = None,
) -> Checkpoint:
    """Opens a checkpoint in any format that Statelens reads. It detects the format from the content.

    `source` is a path, a folder with one checkpoint, a shard or index of a set, an address
    (`https://`, a page of the Hugging Face Hub, `s3://`, `gs://`, `az://`), or a binary file object,
    including one of fsspec. Other files of the checkpoint are found in its folder, or listed in
    `with_files`. `max_fetch` limits the bytes that opening it, and each later read of a tensor, fetches
    from web servers: a number, or a text such as `20GB` (default: 1 GB).

    No code in the file is run. Weights are read when a tensor's values are requested.

    >>> import pathlib
    >>> import pystatelens
    >>> with pathlib.Path("model.safetensors").open("rb") as file:
    ...     sorted(pystatelens.open(file))
    ['layers.0.weight', 'norm']
    """
    return Checkpoint(_native.open(located(source, max_fetch), paths(with_files)))


def located(source: Source | Checkpoint | Mapping[Any, Any], max_fetch: Size | None = None) -> Located:
    """Returns the source as the extension module takes it. A state dict is collected first."""
    fetch = size("max_fetch", max_fetch)
    if isinstance(source, Checkpoint):
        return source._native, "", fetch
    if isinstance(source, Mapping):
        from ._savers import described

        return _native.collect(source, described), "", fetch
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source), "bytes", fetch
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        scheme = path.partition("://")[0] if "://" in path else ""
        if not scheme or _native.is_address(path):
            return path, "", fetch
        import fsspec

        source = fsspec.open(path, "rb")
    if not hasattr(source, "read") and hasattr(source, "open"):
        # `fsspec.core.OpenFile`.
        source = source.open()
    if not hasattr(source, "read"):
        kind = type(source).__name__
        raise TypeError(f"expected a path, an address, a binary file object or bytes, not {kind}")
    if isinstance(source, io.TextIOBase):
        raise TypeError('the file is opened as text; open it with "rb"')
    name = getattr(source, "name", None) or getattr(source, "path", None)
    return source, PurePath(name).name if isinstance(name, str) else "file object", fetch
