"""Works on the checkpoints of training runs, and repairs old ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

from ._arguments import Path, Size, paths, refused, size, strings, whole
from ._functions import called, command_arguments, printed
from ._reports import Progress

_NAME = "checkpoint_{step}.mdl"


def runs(
    folder: Path,
    *,
    name: str = _NAME,
    quick: bool = False,
    values: bool = False,
    by: Literal["state", "role", "tensor"] = "state",
    group: str | Iterable[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Lists the checkpoints of a run folder as the trainer orders them, and its other files.

    `name` is the pattern of their names. Each checkpoint is opened to check whether it is complete, unless
    `quick`. With `values`, all values are read, for norms, deviations and counts of NaN over the steps: of groups
    `by` state, role or tensor, and only of those that match a pattern of `group`.

    >>> import pystatelens
    >>> [file["name"] for file in pystatelens.runs(".")["files"]]
    ['model.safetensors', 'trainer.pt']
    """
    arguments = command_arguments(name=name, quick=quick, values=values)
    if values:
        arguments += command_arguments(by=by, group=strings(group))
    return called("runs", folder, arguments=arguments, progress=progress)[0]


def latest(
    folder: Path, *, name: str = _NAME, sound: bool = False, progress: Progress | None = None
) -> str | None:
    """Returns the path of the checkpoint that the trainer would load, or None. With `sound`, returns the newest
    that is complete, finished, and has every state that the others have. Warns if it is not sound.

    >>> import pystatelens
    >>> pystatelens.latest(".", name="trainer_{step}.mdl") is None
    True
    """
    arguments = command_arguments(name=name, sound=sound)
    passed, text = printed("latest", folder, arguments=arguments, progress=progress)
    return text.removesuffix("\n") if passed else None


def prune(
    folder: Path,
    keep: int,
    *,
    every: int | None = None,
    name: str = _NAME,
    apply: bool = False,
    delete: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Lists the old checkpoints of a run folder that can be removed; with `apply`, moves them to the folder
    `statelens-trash` in it, and with `delete` as well, deletes them.

    Keeps the `keep` newest sound checkpoints, those whose step is a multiple of `every`, the best one, the one that the
    trainer would load, and targets of links. Removes only files that are named like checkpoints (`name`).
    """
    least = whole("keep", keep, 1, 2**32 - 1)
    steps = None if every is None else whole("every", every, 1, 2**64 - 1)
    arguments = command_arguments(keep=least, every=steps, name=name, apply=apply, delete=delete)
    return called("prune", folder, arguments=arguments, progress=progress)[0]


def merge(
    sources: Iterable[Path],
    path: Path,
    *,
    to: str | None = None,
    version: str | None = None,
    compression: str | None = None,
    shard_size: Size | None = None,
    lossy: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Merges checkpoints on disk, of any formats, into one. Dicts are merged key by key. A key that two of them
    have is refused, unless it is the same plain value; with `lossy`, the last one is kept. The options are those of
    `convert`.

    >>> import pystatelens
    >>> report = pystatelens.merge(["model.safetensors", "trainer.pt"], "merged/all.pt")
    >>> list(pystatelens.open("merged/all.pt"))
    ['layers.0.weight', 'norm', 'model.layers.0.weight', 'model.norm', 'epoch']
    """
    arguments = command_arguments(
        to=to,
        format_version=version,
        compress=compression,
        shard_size=size("shard_size", shard_size),
        lossy=lossy,
        force=replace,
        output=os.fspath(path),
    )
    return called("merge", *paths(sources), arguments=arguments, progress=progress)[0]


def upgrade(
    checkpoint: Path,
    path: Path | None = None,
    *,
    to: Literal["0.5", "0.4"] = "0.5",
    lossy: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes a Cerebras checkpoint in another version of its format: 0.5 for releases 2.5 and later, 0.4 for 2.0 to
    2.4. The default of `path` is the name of the checkpoint with the version."""
    output = None if path is None else os.fspath(path)
    arguments = command_arguments(to=to, output=output, lossy=lossy, force=replace)
    return called("upgrade", checkpoint, arguments=arguments, progress=progress)[0]


def fix_checkpoint_spec(
    checkpoint: Path,
    path: Path | None = None,
    *,
    in_place: bool = False,
    upgrade: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Repairs a Cerebras checkpoint of release 1.7 or older, so that later releases load it, as
    `fix_checkpoint_spec.py` of release 2.0.2 does. The default of `path` is the name of the checkpoint with `_fixed`;
    `in_place` replaces the checkpoint. `upgrade` writes format 0.5, which releases 2.5 and later require."""
    arguments = command_arguments(upgrade=upgrade, force=replace)
    if path is not None:
        arguments.append(f"--fixed_checkpoint_path={os.fspath(path)}")
    if in_place:
        arguments += ["--fix_inplace", "--yes"]
    return called("fix-checkpoint-spec", checkpoint, arguments=arguments, progress=progress)[0]


def list_converters(model: str | None = None) -> dict[str, Any]:
    """Lists the models whose checkpoints and configs `convert_model` converts, and between which formats.

    >>> import pystatelens
    >>> "llama" in [model["model"] for model in pystatelens.list_converters()["models"]]
    True
    """
    listed = called("list-converters", arguments=[])[0]
    if model is not None:
        listed["models"] = [one for one in listed["models"] if one["model"] == model]
        if not listed["models"]:
            raise refused(f"there is no model {model!r}", "`list_converters()` lists them.")
    return listed


def formats() -> dict[str, Any]:
    """Lists the formats that are read and written.

    >>> import pystatelens
    >>> "safetensors" in [format["writes"]["id"] for format in pystatelens.formats()["formats"] if format["writes"]]
    True
    """
    return called("formats", arguments=[])[0]
