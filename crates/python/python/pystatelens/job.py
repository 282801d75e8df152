"""Divides a conversion or a check into numbered tasks, which any engine can run on many machines.

>>> import pystatelens
>>> recipe = pystatelens.job.plan("trainer.pt", "model.npz", "job", tasks=2, states="model")
>>> for index in range(recipe["tasks"]):
...     done = pystatelens.job.run("job", index)
>>> pystatelens.job.commit("job")["files"][0].endswith("model.npz")
True

A task may be repeated, killed, or run twice at the same time. After an `IoError` or a `LimitError`, a
retry may succeed; after other exceptions, it fails again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Unpack

from . import _arguments as arguments
from . import _native
from ._arguments import Path, Size, paths, size, strings, whole
from ._convert import ConvertOptions, native_options
from ._dtypes import DType, casts
from ._reports import Progress

__all__ = ["TaskEnd", "abort", "commit", "plan", "plan_many", "run", "status"]


class TaskEnd(NamedTuple):
    """The result of a task."""

    task: int
    """The number of the task."""
    done_before: bool
    """Whether the task was complete before this run."""


def plan(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    job: str | os.PathLike[str],
    *,
    tasks: int | None = None,
    with_files: Path | Iterable[Path] = (),
    max_fetch: Size | None = None,
    limit: int | None = None,
    scratch: Size | None = None,
    unstack: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> dict[str, Any]:
    """Plans a conversion in about `tasks` tasks (default: one for every 2 GB), and returns the recipe.

    `source`, `path` and the folder `job` are paths or object store addresses that all workers can reach.
    Takes the options of `convert`, and those of `open`, with which each task opens the source. The output has the
    same bytes as the output of `convert`.
    """
    places = (os.fspath(source), os.fspath(path), os.fspath(job))
    reading = _reading(with_files, limit, scratch, None, unstack)
    fetch = size("max_fetch", max_fetch)
    return _loaded(
        _native.job_plan(*places, _tasks(tasks), native_options(**options), reading, fetch, progress)
    )


def plan_many(
    command: Literal["verify", "scan", "stats", "manifest"],
    checkpoints: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    job: str | os.PathLike[str],
    *,
    tasks: int | None = None,
    finite: bool = False,
    allow: str | Iterable[str] = (),
    by: Literal["layer", "role", "dtype", "state"] | None = None,
    max_fetch: Size | None = None,
    limit: int | None = None,
    scratch: Size | None = None,
    read_as: DType | Mapping[str, DType] | None = None,
    unstack: bool = False,
) -> dict[str, Any]:
    """Plans a command for many checkpoints (default: ten in each task), and returns the recipe.

    `checkpoints` are files, folders, globs, addresses, prefixes of an object store that end in `/`,
    or `@` and the path of a list. `finite` is an option of `verify`, `allow` of `scan`, `by` of
    `stats`. The others are those of `open`.

    >>> import pystatelens
    >>> recipe = pystatelens.job.plan_many("verify", ["trainer.pt", "*.safetensors"], "checks")
    >>> pystatelens.job.run("checks", 0)
    [TaskEnd(task=0, done_before=False)]
    >>> pystatelens.job.commit("checks")["passed"]
    2
    """
    options = {"finite": finite, "allow": strings(allow), "by": by}
    names = paths(checkpoints)
    reading, fetch = _reading((), limit, scratch, read_as, unstack), size("max_fetch", max_fetch)
    return _loaded(
        _native.job_plan_many(command, names, os.fspath(job), _tasks(tasks), options, reading, fetch)
    )


def run(
    job: str | os.PathLike[str],
    index: int | None = None,
    *,
    per: int = 1,
    progress: Progress | None = None,
) -> list[TaskEnd]:
    """Runs `per` tasks, from task `index * per`.

    The default of `index` comes from `SLURM_ARRAY_TASK_ID`, `JOB_COMPLETION_INDEX`,
    `AWS_BATCH_JOB_ARRAY_INDEX` or `STATELENS_TASK`.
    """
    index = None if index is None else whole("index", index, 0, 2**64 - 1)
    per = whole("per", per, 1, 2**64 - 1)
    return [TaskEnd(*end) for end in _native.job_run(os.fspath(job), index, per, progress)]


def commit(job: str | os.PathLike[str], *, progress: Progress | None = None) -> dict[str, Any]:
    """Completes the output when all tasks are done, and combines their reports. May be repeated.

    Raises an `IoError` with the code `results-missing` if a task is not done.
    """
    return _loaded(_native.job_commit(os.fspath(job), progress))


def status(job: str | os.PathLike[str]) -> dict[str, Any]:
    """Counts the tasks that are done, and lists the failed and the missing ones."""
    return _loaded(_native.job_status(os.fspath(job)))


def abort(job: str | os.PathLike[str]) -> None:
    """Removes all files of the job. The output of a committed job stays."""
    _native.job_abort(os.fspath(job))


def _reading(
    with_files: Path | Iterable[Path],
    limit: int | None,
    scratch: Size | None,
    read_as: DType | Mapping[str, DType] | None,
    unstack: bool,
) -> dict[str, Any]:
    """Returns how a job opens checkpoints."""
    return {
        "with_files": paths(with_files),
        "limit": arguments.limit(limit),
        "scratch": size("scratch", scratch),
        "read_as": casts(read_as),
        "unstack": unstack,
    }


def _tasks(tasks: int | None) -> int | None:
    return None if tasks is None else whole("tasks", tasks, 1, 2**64 - 1)


def _loaded(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded
