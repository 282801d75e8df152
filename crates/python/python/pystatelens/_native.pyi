import os
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, final

from ._makers import Maker

__all__ = [
    "Checkpoint",
    "collect",
    "updated",
    "ls",
    "manifest",
    "matching",
    "call",
    "command",
    "convert",
    "dequantized",
    "files",
    "plan_conversion",
    "in_python",
    "is_address",
    "job_abort",
    "job_commit",
    "job_plan",
    "job_plan_many",
    "job_run",
    "job_status",
    "open",
    "parse_size",
    "check",
    "check_folder",
    "diff",
    "draw",
    "link",
    "page",
    "rank",
    "read_file",
    "renames",
    "singular",
    "snippet",
    "tensor_diff",
    "scan",
    "stats",
    "info",
    "summary",
    "verify",
    "File",
    "Tensor",
    "__version__",
]

__version__: str

_Progress = Callable[[int, int], object] | None
_Item = SupportsIndex | slice | EllipsisType

@final
class Checkpoint:
    @property
    def format(self) -> tuple[str, str, str, str]: ...
    def keys(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def has(self, key: str) -> bool: ...
    def leaf(self, key: str, maker: Maker) -> Any: ...
    def below(self, key: str, maker: Maker) -> Any: ...

@final
class Tensor:
    @property
    def key(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def numpy_type(self) -> Any: ...
    @property
    def is_blocks(self) -> bool: ...
    def slice(self, index: _Item | tuple[_Item, ...]) -> Tensor: ...
    def cast(self, dtype: str) -> Tensor: ...
    def in_file(self) -> tuple[File, int] | None: ...
    def read(self) -> bytearray: ...

@final
class File:
    def fileno(self) -> int: ...

_Located = tuple[Any, str, int | None]

def open(source: _Located, options: Mapping[str, Any]) -> Checkpoint: ...
def dequantized(source: _Located, dtype: str) -> Checkpoint: ...
def files(checkpoint: Checkpoint) -> tuple[int, list[tuple[int, str, int]]]: ...
def page() -> bytes | None: ...
def read_file(checkpoint: Checkpoint, file: int, offset: int, length: int) -> bytes: ...
def parse_size(text: str) -> int: ...
def verify(
    source: _Located, finite: bool, manifest: bytes | None, progress: _Progress
) -> str: ...
def ls(
    source: _Located,
    patterns: Sequence[str],
    tensors: bool,
    dtypes: Sequence[str],
    min_bytes: int,
) -> str: ...
def manifest(source: _Located, progress: _Progress) -> str: ...
def matching(patterns: Sequence[str], keys: Sequence[str]) -> list[bool]: ...
def scan(
    source: _Located, allow: Sequence[str], options: Mapping[str, Any], progress: _Progress
) -> str: ...
def diff(
    left: _Located,
    right: _Located,
    options: Mapping[str, Any],
    progress: _Progress,
) -> str: ...
def renames(
    left: _Located, right: _Located, options: Mapping[str, Any], progress: _Progress
) -> str: ...
def check(
    source: _Located,
    reference: _Located | Sequence[tuple[str, str | None, Sequence[int] | None]],
    state: str | None,
    strict: bool,
    release: str | None,
    strict_version: bool,
) -> str: ...
def check_folder(path: str, levels: Sequence[str], fix_index: bool) -> str: ...
def info(source: _Located, model: bool, config: str | None) -> str: ...
def summary(source: _Located, to: str, stats: bool, content: bool, progress: _Progress) -> str: ...
def stats(
    source: _Located, options: Mapping[str, Any], progress: _Progress
) -> str: ...
def link(source: _Located, options: Mapping[str, Any], progress: _Progress) -> str: ...
def singular(
    tensor: Tensor, all: bool, top: int | None, dry_run: bool, progress: _Progress
) -> str: ...
def draw(
    tensor: Tensor,
    path: str,
    size: tuple[int, int],
    options: Mapping[str, Any],
    progress: _Progress,
) -> int: ...
def tensor_diff(
    left: _Located,
    right: _Located,
    keys: Sequence[str],
    options: Mapping[str, Any],
    bins: int,
    picture: str | None,
    drawing: Mapping[str, Any],
    progress: _Progress,
) -> str: ...
def snippet(source: _Located, key: str, library: str | None, given: str | None) -> str: ...
def rank(tensor: Tensor, lines: str, top: int, progress: _Progress) -> str: ...
def convert(
    source: _Located, path: str, options: Mapping[str, Any], progress: _Progress
) -> str: ...
def plan_conversion(
    source: _Located, path: str, options: Mapping[str, Any], scan: bool, progress: _Progress
) -> str: ...
def job_plan(
    source: str,
    path: str,
    job: str,
    tasks: int | None,
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
    max_fetch: int | None,
    progress: _Progress,
) -> str: ...
def job_plan_many(
    command: str,
    paths: Sequence[str],
    job: str,
    tasks: int | None,
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
    max_fetch: int | None,
) -> str: ...
def job_run(
    job: str, index: int | None, per: int, progress: _Progress
) -> list[tuple[int, bool]]: ...
def job_commit(job: str, progress: _Progress) -> str: ...
def job_status(job: str) -> str: ...
def job_abort(job: str) -> None: ...
def collect(object: Any, describe: Callable[[Any, str], Any]) -> Checkpoint: ...
def updated(
    of: Checkpoint, updates: Mapping[str, Any], describe: Callable[[Any, str], Any]
) -> Checkpoint: ...
def command(arguments: Sequence[str]) -> int: ...
def call(
    arguments: Sequence[str], max_fetch: int | None, progress: _Progress
) -> tuple[bool, str, list[str]]: ...
def in_python(text: str) -> str: ...
def is_address(path: str) -> bool: ...
