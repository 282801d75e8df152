"""The exceptions of pystatelens, by what you can do about them. They can be pickled."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CancelledError",
    "DamagedError",
    "ExistsError",
    "IoError",
    "LimitError",
    "NoSuchKeyError",
    "NotFoundError",
    "RefusedError",
    "SliceError",
    "StatelensError",
    "UnsupportedError",
]


class StatelensError(Exception):
    """The base of all exceptions of pystatelens.

    `str()` of it says what is wrong, where, and what to do. `code` is the same in all versions.

    >>> import pystatelens
    >>> try:
    ...     pystatelens.open("missing.pt")
    ... except pystatelens.StatelensError as error:
    ...     print(error, error.code, error.file)
    missing.pt: the file does not exist. not-found missing.pt
    """

    what: str
    """The problem, without its place and without advice."""
    code: str
    """A stable name of the problem."""
    file: str | None
    """The file in which it is."""
    offset: int | None
    """The byte of that file."""
    advice: str | None
    """What to do next."""

    def __init__(
        self,
        message: str,
        what: str | None = None,
        code: str = "",
        file: str | None = None,
        offset: int | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self._message = message
        self.what = message if what is None else what
        self.code = code
        self.file = file
        self.offset = offset
        self.advice = advice

    def __str__(self) -> str:
        return self._message

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self._message, self.what, self.code, self.file, self.offset, self.advice)
        return (type(self), given)


class DamagedError(StatelensError, ValueError):
    """The file violates its format: download it again, or examine the damaged place."""


class UnsupportedError(StatelensError):
    """The file is valid, but Statelens or the requested library does not support it."""


class LimitError(StatelensError):
    """Going on would exceed a limit."""


class RefusedError(StatelensError):
    """The operation would lose or overwrite something, or does not make sense."""


class IoError(StatelensError, OSError):
    """Reading or writing failed. If a file object raised an exception, it is the `__cause__`."""


class CancelledError(StatelensError):
    """The progress callback returned `False`. Nothing was kept."""


class NoSuchKeyError(RefusedError, KeyError):
    """The checkpoint does not have this key."""


class SliceError(RefusedError, IndexError):
    """The index does not fit the shape of the tensor."""


class NotFoundError(IoError, FileNotFoundError):
    """The file does not exist."""


class ExistsError(RefusedError, FileExistsError):
    """The file to write exists."""
