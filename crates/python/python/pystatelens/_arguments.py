"""Checks arguments before the extension module takes them."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from . import _native
from .errors import RefusedError

Path: TypeAlias = str | os.PathLike[str]
"""A path or an address."""

Size: TypeAlias = int | str
"""A number of bytes, or a text such as `20GB`."""


def strings(values: str | Iterable[str]) -> list[str]:
    """Returns a list of strings. A single string is one item."""
    return [values] if isinstance(values, str) else [str(value) for value in values]


def paths(values: Path | Iterable[Path]) -> list[str]:
    """Returns a list of paths. A single path is one item."""
    if isinstance(values, (str, os.PathLike)):
        return [os.fspath(values)]
    return [os.fspath(value) for value in values]


def size(name: str, value: Size | None) -> int | None:
    """Returns a number of bytes."""
    if value is None:
        return None
    if isinstance(value, str):
        return _native.parse_size(value)
    return whole(name, value, 0, 2**64 - 1)


def limit(value: int | None) -> int | None:
    """Returns a multiple of the default limits; 0 lifts them."""
    return None if value is None else whole("limit", value, 0, 2**64 - 1)


def whole(name: str, value: int, least: int, most: int) -> int:
    """Returns a whole number in a range, or refuses it."""
    number = value.__index__()
    if not least <= number <= most:
        raise refused(f"{name} is {number:,}", f"Expected {least:,} to {most:,}.")
    return number


def tolerance(name: str, value: float | None) -> float | None:
    """Returns a tolerance, which is finite and not negative."""
    if value is None:
        return None
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise refused(f"{name} is {number}", "Expected a finite number that is not negative.")
    return number


def renames_text(names: Mapping[str, str] | Path | None) -> str | None:
    """Returns the text of a list of old and new keys, which is given as a mapping or as the path of a file."""
    if names is None:
        return None
    if isinstance(names, (str, os.PathLike)):
        return pathlib.Path(names).read_text(encoding="utf-8")
    return json.dumps(dict(names))


def refused(what: str, advice: str) -> RefusedError:
    """Returns the error for an argument."""
    return RefusedError(f"{what}. {advice}", what, "refused", advice=advice)
