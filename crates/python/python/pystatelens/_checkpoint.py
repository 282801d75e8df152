"""Opens checkpoints."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeAlias

from . import _arguments as arguments
from . import _native, _tensor
from ._arguments import Path, Size, paths, size, strings
from ._dtypes import DType, casts
from ._makers import Maker, maker, skipping, without_skipped
from ._tensor import Options, Origin, Tensor, origin_of
from .errors import NotFoundError

if TYPE_CHECKING:
    from ._native import Checkpoint as NativeCheckpoint
    from ._view import View


class File(Protocol):
    """A binary file object of Python or fsspec."""

    def read(self, size: int, /) -> bytes | bytearray | memoryview: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def tell(self) -> int: ...


Source: TypeAlias = str | os.PathLike[str] | File | bytes | bytearray | memoryview
"""The source of a checkpoint: a path, an address, a file object, or the bytes of a file."""

Located: TypeAlias = tuple[Any, str, int | None]
"""What the extension module opens: an open checkpoint, a path, a list of paths, an address or a file object; the
name of the file; and the number of bytes that may be fetched."""


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

    __slots__ = ("__weakref__", "_maker", "_opened")

    def __init__(self, native: NativeCheckpoint, origin: Origin | None = None) -> None:
        if not isinstance(native, _native.Checkpoint):
            raise TypeError("a checkpoint is opened by `pystatelens.open`")
        self._opened: NativeCheckpoint | None = native
        self._maker = Maker(origin)

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
        return self._native.leaf(key, self._maker)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._native.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.keys())

    def __len__(self) -> int:
        return len(self._native)

    def tensors(self, patterns: str | Iterable[str] = ()) -> Iterator[tuple[str, Tensor]]:
        """Yields the keys and their tensors and arrays, in file order. A tied tensor appears under each
        of its keys. With `patterns`, globs or regular expressions between slashes, yields only those
        whose keys match one."""
        return _tensors(self, patterns)

    def below(self, key: str) -> Subtree:
        """Returns the leaves below `key` as a mapping, whose keys lack `key` and the dot after it.

        >>> import pystatelens
        >>> model = pystatelens.open("trainer.pt").below("model")
        >>> list(model), model["norm"].shape
        (['layers.0.weight', 'norm'], (6,))
        """
        return Subtree(self, key)

    def dequantized(self, dtype: str = "float32") -> Checkpoint:
        """Returns a checkpoint in which each quantised weight is one tensor of numbers, under the name that
        it has in a model that is not quantised, and whose scales are left out.

        This includes GPTQ, AWQ, bitsandbytes, compressed-tensors, MLX, FP8 with scales, MXFP4 and the blocks
        of GGUF. Values are computed when they are read: exactly in float32, or rounded to `float16` or
        `bfloat16`. Raises `UnsupportedError` or `DamagedError` if the values of a weight are not known.
        """
        return Checkpoint(_native.dequantized((self._native, "", None), dtype))

    def code(self, key: str, library: str | None = None) -> str:
        """Returns Python code that reads the value of `key`, which a slice may follow, with the usual library for this
        format or with `library`.

        >>> import pystatelens
        >>> "safe_open" in pystatelens.open("model.safetensors").code("norm[:2]")
        True
        """
        given = self._maker.origin[0][0] if self._maker.origin else None
        return _native.snippet((self._native, "", None), key, library, given)

    def state_dict(
        self,
        key: str = "",
        *,
        framework: Literal["torch", "numpy", "lazy"] = "torch",
        skip: bool = False,
    ) -> Any:
        """Returns the nested dicts and lists below `key` (default: all), with torch tensors, NumPy arrays
        or, for `lazy`, instances of `Tensor`.

        An object that occurs several times in the checkpoint is one object in the result: tied tensors
        stay tied. With `skip`, tensors that can't be read into the framework are left out, such as those
        on the device `meta`; otherwise, the exception names the first of them.

        >>> import pystatelens
        >>> pystatelens.open("trainer.pt").state_dict("model", framework="lazy")
        {'layers': {'0': {'weight': Tensor('model.layers.0.weight', float32, (4, 6))}}, 'norm': ...}
        """
        if framework == "lazy":
            return self._native.below(key, self._maker)
        if not skip:
            return self._native.below(key, maker(framework))
        return without_skipped(self._native.below(key, skipping(maker(framework))))

    def view(self, *, height: int = 560, page: Path | None = None) -> View:
        """Shows the checkpoint in a cell of a notebook, as `pystatelens.view` does."""
        from ._view import view

        return view(self, height=height, page=page)

    def _repr_html_(self) -> str:
        """Returns the table of keys for notebooks, with repeated layers folded."""
        return _native.summary((self._native, "", None), "fragment", False, False, None)

    def __repr__(self) -> str:
        if self._opened is None:
            return "<Checkpoint: closed>"
        title = " ".join(part for part in (self.format.name, self.format.version) if part)
        return f"<Checkpoint: {title}, {len(self):,} keys>"

    def __reduce__(self) -> Any:
        """Opens the checkpoint again, by its path or address."""
        self._native  # noqa: B018  A closed checkpoint can't be pickled.
        return reopened, (origin_of(self._maker.origin),)


class Subtree(Mapping[str, Any]):
    """The leaves of a checkpoint below a key, as a mapping from the rest of their keys."""

    __slots__ = ("_checkpoint", "_key", "_keys")

    def __init__(self, checkpoint: Checkpoint, key: str) -> None:
        self._checkpoint = checkpoint
        self._key = key
        start = f"{key}." if key else ""
        self._keys = {whole.removeprefix(start): whole for whole in checkpoint if whole.startswith(start)}
        if not self._keys:
            # Raises the exception that suggests similar keys.
            checkpoint._native.below(key, checkpoint._maker)

    def __getitem__(self, key: str) -> Any:
        known = self._keys.get(key) if isinstance(key, str) else None
        if known is None:
            # Raises the exception that suggests similar keys.
            return self._checkpoint[f"{self._key}.{key}"]
        return self._checkpoint[known]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def tensors(self, patterns: str | Iterable[str] = ()) -> Iterator[tuple[str, Tensor]]:
        """Yields the keys and their tensors and arrays, as `Checkpoint.tensors` does."""
        return _tensors(self, patterns)

    def state_dict(
        self, *, framework: Literal["torch", "numpy", "lazy"] = "torch", skip: bool = False
    ) -> Any:
        """Returns what is below the key as nested dicts and lists, as `Checkpoint.state_dict` does."""
        return self._checkpoint.state_dict(self._key, framework=framework, skip=skip)

    def __repr__(self) -> str:
        return f"<{self._key!r} of {self._checkpoint!r}, {len(self):,} keys>"


def _tensors(
    leaves: Mapping[str, Any], patterns: str | Iterable[str]
) -> Iterator[tuple[str, Tensor]]:
    keys = list(leaves)
    wanted = strings(patterns)
    if wanted:
        keys = list(compress(keys, _native.matching(wanted, keys)))
    for key in keys:
        value = leaves[key]
        if isinstance(value, Tensor):
            yield key, value


def open(
    source: Source | Iterable[Path],
    *,
    with_files: Path | Iterable[Path] = (),
    max_fetch: Size | None = None,
    limit: int | None = None,
    scratch: Size | None = None,
    read_as: DType | Mapping[str, DType] | None = None,
    unstack: bool = False,
) -> Checkpoint:
    """Opens a checkpoint in any format that Statelens reads. It detects the format from the content.

    `source` is a path, a folder with one checkpoint, a shard or index of a set, an address
    (`https://`, `hf://owner/name` or a page of the Hugging Face Hub, `s3://`, `gs://`, `az://`), or a
    binary file object, including one of fsspec. Other files of the checkpoint are found in its folder, or listed in
    `with_files`. Several paths, in a list or as a glob such as `part-*.safetensors`, are shards of a set, or
    checkpoints with different keys, which are merged.

    `max_fetch` limits the bytes that opening it, and each later read of a tensor, fetches from web servers: a
    number, or a text such as `20GB` (default: 1 GB). `limit` multiplies the limits on memory and work, for a file
    that you trust; 0 lifts them. `scratch` is the disk space for reordering tensors (default: 8 GB). `read_as` is
    the dtype of arrays whose file does not have it, or maps patterns of keys to dtypes. `unstack` makes one key for
    each layer where Megatron stored all layers in one tensor. Functions that take an open checkpoint use the same
    limits.

    No code in the file is run. Weights are read when a tensor's values are requested.

    Raises `NotFoundError` if there is no such file, `DamagedError` if it violates its format,
    `UnsupportedError` if it is not a checkpoint that Statelens reads, `LimitError` if opening takes more than
    a limit, `RefusedError` if several files have the same key, and `IoError` if reading fails.

    >>> import pathlib
    >>> import pystatelens
    >>> with pathlib.Path("model.safetensors").open("rb") as file:
    ...     sorted(pystatelens.open(file))
    ['layers.0.weight', 'norm']
    """
    options = (
        tuple(os.path.abspath(path) if "://" not in path else path for path in paths(with_files)),
        arguments.limit(limit),
        size("scratch", scratch),
        tuple(casts(read_as)),
        unstack,
    )
    place = located(source, max_fetch)
    opened = _native.open(place, _options(options))
    # Absolute, because another process has another folder.
    match place[0]:
        case list(several):
            sources = tuple(several)
        case str(path):
            sources = (path,)
        case _:
            return Checkpoint(opened)
    absolute = tuple(path if "://" in path else os.path.abspath(path) for path in sources)
    return Checkpoint(opened, (absolute, place[2], options))


OPENING: dict[str, Any] = {
    "with_files": [],
    "limit": None,
    "scratch": None,
    "read_as": [],
    "unstack": False,
}
"""The default options for opening a checkpoint, as the extension module takes them."""


def _options(options: Options) -> dict[str, Any]:
    with_files, limit, scratch, read_as, unstack = options
    return {
        "with_files": list(with_files),
        "limit": limit,
        "scratch": scratch,
        "read_as": list(read_as),
        "unstack": unstack,
    }


def reopened(origin: Origin) -> Checkpoint:
    """Opens a checkpoint again, unless it was opened again recently: its tensors share it."""
    if origin not in _REOPENED:
        sources, max_fetch, options = origin
        while len(_REOPENED) >= _MOST_REOPENED:
            del _REOPENED[next(iter(_REOPENED))]
        place = (sources[0] if len(sources) == 1 else list(sources), "", max_fetch)
        _REOPENED[origin] = Checkpoint(_native.open(place, _options(options)), origin)
    return _REOPENED[origin]


_MOST_REOPENED = 8
_REOPENED: dict[Origin, Checkpoint] = {}
_tensor.reopened = reopened


def located(
    source: Source | Iterable[Path] | Checkpoint | Mapping[Any, Any], max_fetch: Size | None = None
) -> Located:
    """Returns the source as the extension module takes it. A state dict is collected first."""
    fetch = size("max_fetch", max_fetch)
    if isinstance(source, Checkpoint):
        return source._native, "", fetch
    if isinstance(source, Mapping):
        from ._savers import described

        return _native.collect(source, described), "", fetch
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source), "bytes", fetch
    if isinstance(source, (list, tuple)):
        return _several(source), "", fetch
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        scheme = path.partition("://")[0] if "://" in path else ""
        if not scheme and glob.has_magic(path) and not os.path.exists(path):
            return _several([path]), "", fetch
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


def _several(sources: Iterable[object]) -> str | list[str]:
    """Returns the paths of several files, or that of the only one. A path may be a glob."""
    found = []
    for source in sources:
        if not isinstance(source, (str, os.PathLike)):
            kind = type(source).__name__
            raise TypeError(f"expected a path, an address, a binary file object or bytes, not a list with {kind}")
        path = os.fspath(source)
        matching = [path]
        if "://" not in path and glob.has_magic(path) and not os.path.exists(path):
            matching = sorted(glob.glob(path, recursive=True))
            if not matching:
                what = "no file matches this pattern"
                raise NotFoundError(f"{path}: {what}.", what, "not-found", path)
        found += matching
    if not found:
        raise arguments.refused("the list of files is empty", "Name one file or more.")
    return found[0] if len(found) == 1 else found
