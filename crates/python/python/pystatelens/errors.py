"""Exceptions of pystatelens. Each class suggests a different reaction. They can be pickled."""

from __future__ import annotations

import errno as codes
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
    "StatelensWarning",
    "UnsupportedError",
]


class StatelensError(Exception):
    """Base class of the exceptions of pystatelens.

    `str(error)` has the problem, the place and the advice. `code` is the same in all versions.

    >>> import pystatelens
    >>> try:
    ...     pystatelens.open("missing.pt")
    ... except pystatelens.StatelensError as error:
    ...     print(error, error.code, error.file)
    missing.pt: the file does not exist. not-found missing.pt
    """

    what: str
    """The problem, without the place and the advice."""
    code: str
    """A stable name of the problem."""
    file: str | None
    """The file with the problem."""
    offset: int | None
    """The byte offset of the problem in the file."""
    advice: str | None
    """The next step for the user."""
    _errno = codes.EIO

    def __init__(
        self,
        message: str,
        what: str | None = None,
        code: str = "",
        file: str | None = None,
        offset: int | None = None,
        advice: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        _set_system_error(self, self._errno if errno is None else errno, what or message, file)
        self._message = message
        self.what = message if what is None else what
        self.code = code
        self.file = file
        self.offset = offset
        self.advice = advice

    def __str__(self) -> str:
        return self._message

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._message, self.what, self.code, self.file, self.offset, self.advice)
        return (type(self), (*arguments, getattr(self, "errno", None)))


def _set_system_error(error: object, number: int, what: str, file: str | None) -> None:
    """Sets what `OSError` takes as arguments. The number `EIO` stands for an unknown one."""
    if isinstance(error, OSError):
        error.errno, error.strerror, error.filename = number, what, file


class StatelensWarning(UserWarning):
    """A note about a result, such as that the latest checkpoint of a run is not sound."""


class DamagedError(StatelensError, ValueError):
    """The file violates its format. Download it again, or examine the damaged place."""


class UnsupportedError(StatelensError):
    """The file is valid, but Statelens or the requested library does not support it."""


class LimitError(StatelensError):
    """The operation would exceed a limit."""


class RefusedError(StatelensError):
    """The operation would lose or overwrite something, or its arguments are invalid."""


class IoError(StatelensError, OSError):
    """Reading or writing failed. The `__cause__` is the exception of a file object, if it raised one."""


class CancelledError(StatelensError):
    """The progress callback returned `False`. Incomplete output was removed."""


class NoSuchKeyError(RefusedError, KeyError):
    """The checkpoint does not have this key."""


class SliceError(RefusedError, IndexError):
    """The index does not fit the shape of the tensor."""


class NotFoundError(IoError, FileNotFoundError):
    """The file does not exist."""

    _errno = codes.ENOENT


class ExistsError(RefusedError, FileExistsError):
    """The output file exists."""

    _errno = codes.EEXIST
