"""Works on the checkpoints of training runs, repairs old ones, and converts what belongs to a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
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
    keep: bool | Path = False,
    picture: Path | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Lists the checkpoints of a run folder as the trainer orders them, and its other files.

    `name` is the pattern of their names. Each checkpoint is opened to check whether it is complete, unless
    `quick`. With `values`, all values are read, for norms, deviations and counts of NaN over the steps: of groups
    `by` state, role or tensor, and only of those that match a pattern of `group`. `keep` saves the statistics in
    `statelens-values.json` in the folder, or in the file that it names, so that later calls read only checkpoints that
    are new or have changed. `picture` saves the norms over the steps as an `.svg`.

    >>> import pystatelens
    >>> [file["name"] for file in pystatelens.runs(".")["files"]]
    ['model.safetensors', 'trainer.pt']
    """
    arguments = command_arguments(name=name, quick=quick, values=values)
    if values:
        arguments += command_arguments(by=by, group=strings(group), keep=keep, picture=picture, force=replace)
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
    shards: Mapping[str, str] | None = None,
    object_graph: bool = False,
    state_file: bool = False,
    lossy: bool = False,
    replace: bool = False,
    sync: bool = False,
    max_fetch: Size | None = None,
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
        shard=[f"{pattern}={name}" for pattern, name in (shards or {}).items()],
        object_graph=object_graph,
        state_file=state_file,
        lossy=lossy,
        force=replace,
        sync=sync,
        output=os.fspath(path),
    )
    places = paths(sources)
    return called("merge", *places, arguments=arguments, max_fetch=max_fetch, progress=progress)[0]


def upgrade(
    checkpoint: Path,
    path: Path | None = None,
    *,
    to: Literal["0.5", "0.4"] = "0.5",
    lossy: bool = False,
    replace: bool = False,
    sync: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes a Cerebras checkpoint in another version of its format: 0.5 for releases 2.5 and later, 0.4 for 2.0 to
    2.4. The default of `path` is the name of the checkpoint with the version."""
    output = None if path is None else os.fspath(path)
    arguments = command_arguments(to=to, output=output, lossy=lossy, force=replace, sync=sync)
    return called("upgrade", checkpoint, arguments=arguments, max_fetch=max_fetch, progress=progress)[0]


def fix_checkpoint_spec(
    checkpoint: Path,
    path: Path | None = None,
    *,
    in_place: bool = False,
    upgrade: bool = False,
    replace: bool = False,
    sync: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Repairs a Cerebras checkpoint of release 1.7 or older, so that later releases load it, as
    `fix_checkpoint_spec.py` of release 2.0.2 does. The default of `path` is the name of the checkpoint with `_fixed`;
    `in_place` replaces the checkpoint. `upgrade` writes format 0.5, which releases 2.5 and later require."""
    arguments = command_arguments(upgrade=upgrade, force=replace, sync=sync)
    if path is not None:
        arguments.append(f"--fixed_checkpoint_path={os.fspath(path)}")
    if in_place:
        arguments += ["--fix_inplace", "--yes"]
    command = "fix-checkpoint-spec"
    return called(command, checkpoint, arguments=arguments, max_fetch=max_fetch, progress=progress)[0]


def convert_dataloader_state(
    checkpoint: Path,
    states: Path,
    path: Path,
    *,
    dataloader: Literal["map", "iterable"] = "map",
    seed: int = 0,
    to: Literal["0.4", "0.5"] = "0.4",
    replace: bool = False,
    sync: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Adds the dataloader state, which release 1.9 of the Cerebras library kept in the folder `states`, to the
    checkpoint, and writes it to `path`, as `data_iter_state_conversion.py` of release 2.0.2 does.

    A `map` picks samples by their number, in the order of `seed`; an `iterable` streams shards. `to` is the version of
    the format: releases 2.0 and later read 0.4, 2.5 and later 0.5.
    """
    arguments = command_arguments(
        old_checkpoint=os.fspath(checkpoint),
        worker_data_iter_files_dir=os.fspath(states),
        output_file=os.fspath(path),
        dataloader_type=dataloader,
        shuffle_seed=whole("seed", seed, -(2**63), 2**63 - 1),
        to=to,
        force=replace,
        sync=sync,
    )
    command = "convert-dataloader-state"
    return called(command, arguments=arguments, max_fetch=max_fetch, progress=progress)[0]


def convert_config(
    config: Path,
    to: str,
    *,
    model: str | None = None,
    src_fmt: str | None = None,
    output_dir: Path | None = None,
    replace: bool = False,
    sync: bool = False,
) -> dict[str, Any]:
    """Converts the config of a model between Hugging Face and Cerebras's releases, as `convert_model` does with that of
    a checkpoint. `report["files"]` has the paths of what was written, and `report["dropped"]` the keys that the target
    can't hold.

    `config` is the `config.json` of Hugging Face, a `.yaml` of Cerebras, or a folder of parts. The file is written to
    `output_dir`, by default the folder of `config`. `model` and `src_fmt` are recognised if the config identifies them.
    Raises `RefusedError` if the config has settings that the other side does not support.
    """
    arguments = command_arguments(
        tgt_fmt=to, model=model, src_fmt=src_fmt, output_dir=output_dir, force=replace, sync=sync
    )
    return called("convert-config", config, arguments=arguments)[0]


def fold_lora(
    checkpoint: Path,
    *,
    adapter: Path | None = None,
    config: Path | None = None,
    output_dir: Path | None = None,
    hf_shard_size: Size | None = None,
    replace: bool = False,
    sync: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Folds LoRA into the weights: in a Cerebras checkpoint, or the PEFT adapter `adapter` into its model.

    `config` is the config that a Cerebras model was trained with, by default the one next to it; `adapter` that in the
    folder of the checkpoint. The files are written to `output_dir`, by default the folder of the checkpoint; those of a
    model with an adapter are split at `hf_shard_size` (default: 10 GB). Returns a report for each checkpoint that it
    wrote, as `convert` does.
    """
    arguments = command_arguments(
        adapter=adapter,
        config=config,
        output_dir=output_dir,
        hf_shard_size=size("hf_shard_size", hf_shard_size),
        force=replace,
        sync=sync,
    )
    return called("fold-lora", checkpoint, arguments=arguments, max_fetch=max_fetch, progress=progress)


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
