"""Runs commands as functions."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import Any

from . import _native
from ._arguments import Size, size
from .errors import StatelensWarning


def command_arguments(**options: Any) -> list[str]:
    """Returns the arguments of the command for options by name. `None`, `False` and empty lists are left out."""
    arguments = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(option)
        elif isinstance(value, list):
            arguments += [f"{option}={item}" for item in value]
        elif value is not None and value is not False:
            arguments.append(f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return arguments


def printed(
    command: str,
    *places: str | os.PathLike[str],
    arguments: list[str],
    max_fetch: Size | None = None,
    progress: Callable[[int, int], object] | None = None,
    level: int = 3,
) -> tuple[bool, str]:
    """Runs a command; returns whether its result is positive, and what it prints. Its notes become warnings, which
    belong to the line `level` calls above."""
    line = [command, *arguments, "--", *(os.fspath(place) for place in places)]
    passed, text, notes = _native.call(line, size("max_fetch", max_fetch), progress)
    for note in notes:
        warnings.warn(note, StatelensWarning, stacklevel=level)
    return passed, text


def called(
    command: str,
    *places: str | os.PathLike[str],
    arguments: list[str],
    max_fetch: Size | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[dict[str, Any]]:
    """Runs a command; returns its reports."""
    options = ["--json", *arguments]
    _, text = printed(command, *places, arguments=options, max_fetch=max_fetch, progress=progress, level=4)
    reports, decoder, at = [], json.JSONDecoder(), 0
    while at < len(text):
        report, at = decoder.raw_decode(text, at)
        reports.append(report)
        # A line ends each.
        at += 1
    return reports
