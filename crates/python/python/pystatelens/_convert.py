"""Converts checkpoints to other formats and to other implementations of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from . import _native
from ._arguments import Size, size, strings
from ._checkpoint import Checkpoint, Located, Source, located
from ._dtypes import DType, dtype_name
from ._reports import Progress
from .reports import ConvertReport


class ConvertOptions(TypedDict, total=False):
    """Options of `convert`."""

    to: str | None
    version: str | None
    compression: str | None
    shard_size: Size | None
    shards: Mapping[str, str] | None
    object_graph: bool
    state_file: bool
    select: str | Iterable[str]
    exclude: str | Iterable[str]
    states: str | Iterable[str]
    rename: Mapping[str, str] | None
    rename_map: Mapping[str, str] | str | os.PathLike[str] | None
    strip_prefix: str
    prefix: str
    nest: bool
    cast: DType | Mapping[str, DType] | None
    read_as: DType | Mapping[str, DType] | None
    untie: bool
    lossy: bool
    replace: bool


def convert(
    source: Source | Checkpoint | Mapping[Any, Any],
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    version: str | None = None,
    compression: str | None = None,
    shard_size: Size | None = None,
    shards: Mapping[str, str] | None = None,
    object_graph: bool = False,
    state_file: bool = False,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    states: str | Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    rename_map: Mapping[str, str] | str | os.PathLike[str] | None = None,
    strip_prefix: str = "",
    prefix: str = "",
    nest: bool = False,
    cast: DType | Mapping[str, DType] | None = None,
    read_as: DType | Mapping[str, DType] | None = None,
    untie: bool = False,
    lossy: bool = False,
    replace: bool = False,
    update: Mapping[str, Any] | None = None,
    drop: str | Iterable[str] = (),
    dry_run: bool | Literal["scan"] = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Converts a checkpoint to another format, in bounded memory.

    The output: `to` names the format (`safetensors`, `torch`, `cerebras`, `tensorflow`, `npz`, or the id of
    a format that is written, such as `torch-zip`). The default depends on the extension of `path`.
    `version` is that of the format, `0.5` or `0.4` for Cerebras, and `compression` its method, `lz4` or
    `gzip`, which only Cerebras has. `shard_size` splits the output into files of at most so many bytes of
    tensors, a number or a text such as `5GB`, with an index; `shards` maps patterns of keys to the names
    of files instead (safetensors, PyTorch, TensorFlow). `object_graph` writes the graph that
    `tf.train.Checkpoint` restores from, and `state_file` the file `checkpoint` (TensorFlow).

    The edits, in this order: `states` keeps top-level entries such as `model`; `select` and `exclude` are
    patterns of keys, globs or regular expressions between slashes; `strip_prefix` removes a prefix;
    `rename` maps regular expressions to replacements, in which `$1` is a group; `rename_map` maps whole
    keys, or names a file that does; `prefix` adds a prefix; `nest` splits names at their dots into nested
    dicts; `cast` is a dtype for all floating-point tensors, or maps patterns to dtypes. `untie` writes a
    copy for each key of a tied tensor. `read_as` is the dtype of arrays whose file does not have it.

    `update` maps keys to new values, tensors or arrays or plain values: a key that exists gets the new value, with
    all keys that are tied to it, and others are added at the top. `drop` leaves out keys, as `exclude` does.

    A conversion that loses something is refused unless `lossy` is true, and files are replaced only with
    `replace`. `dry_run` writes nothing and returns the plan; `"scan"` also counts what casts would do.

    The files get their names when all are complete and have been read back. Returns the report that
    `statelens convert --json` prints. Raises `RefusedError` if something would be lost, `ExistsError` if a
    file exists, and the exceptions of `open`.

    >>> import pystatelens
    >>> report = pystatelens.convert("trainer.pt", "model.npz", states="model", cast="float16")
    >>> report["files"], report["cast"]["changed"]
    (['model.npz'], 0)
    >>> list(pystatelens.open("model.npz"))
    ['model.layers.0.weight', 'model.norm']
    """
    options = native_options(
        to=to,
        version=version,
        compression=compression,
        shard_size=shard_size,
        shards=shards,
        object_graph=object_graph,
        state_file=state_file,
        select=select,
        exclude=[*strings(exclude), *strings(drop)],
        states=states,
        rename=rename,
        rename_map=rename_map,
        strip_prefix=strip_prefix,
        prefix=prefix,
        nest=nest,
        cast=cast,
        read_as=read_as,
        untie=untie,
        lossy=lossy,
        replace=replace,
    )
    place = (_updated(located(source, max_fetch), update or {}), os.fspath(path), options)
    if dry_run:
        report = _native.plan_conversion(*place, dry_run == "scan", progress)
    else:
        report = _native.convert(*place, progress)
    loaded: ConvertReport = json.loads(report)
    return loaded


def _updated(place: Located, update: Mapping[str, Any]) -> Located:
    """Returns a source in which some keys have other values."""
    if not update:
        return place
    from ._savers import described

    source, _, fetch = place
    native = source if isinstance(source, _native.Checkpoint) else _native.open(place, [])
    return _native.updated(native, dict(update), described), "", fetch


def convert_model(
    checkpoint: str | os.PathLike[str],
    to: str,
    *,
    model: str | None = None,
    src_fmt: str | None = None,
    config: str | os.PathLike[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    hf_shard_size: str | None = None,
    export_safetensors: bool = False,
    drop_unmatched_keys: bool = False,
    unwrap: bool = False,
    with_optimizer: bool = False,
    fold_lora: bool = False,
    ranks: int | None = None,
    cast: DType | Mapping[str, DType] | None = None,
    recipe: str | os.PathLike[str] | None = None,
    lossy: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Converts a model and its config between implementations: `hf`, `cs-2.9`, `cs-current`, `meta` and
    others. See `statelens convert-model --help`.

    Returns a report for each checkpoint that it wrote.
    """
    values: dict[str, object] = {
        "--tgt-fmt": to,
        "--model": model,
        "--src-fmt": src_fmt,
        "--config": config,
        "--output-dir": output_dir,
        "--hf-shard-size": hf_shard_size,
        "--ranks": ranks,
        "--recipe": recipe,
    }
    flags = {
        "--export-safetensors": export_safetensors,
        "--drop-unmatched-keys": drop_unmatched_keys,
        "--unwrap": unwrap,
        "--with-optimizer": with_optimizer,
        "--fold-lora": fold_lora,
        "--lossy": lossy,
        "--force": replace,
    }
    arguments = ["--json"]
    arguments += [f"{name}={_text(value)}" for name, value in values.items() if value is not None]
    arguments += [f"--cast={key}={dtype}" if key else f"--cast={dtype}" for key, dtype in _casts(cast, "")]
    arguments += [name for name, flag in flags.items() if flag]
    printed = _native.convert_model([*arguments, "--", os.fspath(checkpoint)], progress)
    return [json.loads(line) for line in printed.splitlines()]


def native_options(**options: Unpack[ConvertOptions]) -> dict[str, Any]:
    """Returns the options of `convert` in the form that the extension module takes."""
    shard_size = size("shard_size", options.get("shard_size"))
    unknown = options.keys() - ConvertOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")
    return {
        "to": options.get("to"),
        "version": options.get("version"),
        "compression": options.get("compression"),
        "shard_size": None if shard_size is None else str(shard_size),
        "shards": list((options.get("shards") or {}).items()),
        "object_graph": options.get("object_graph", False),
        "state_file": options.get("state_file", False),
        "select": strings(options.get("select", ())),
        "exclude": strings(options.get("exclude", ())),
        "states": strings(options.get("states", ())),
        "rename": list((options.get("rename") or {}).items()),
        "rename_map": _renames(options.get("rename_map")),
        "strip_prefix": options.get("strip_prefix", ""),
        "prefix": options.get("prefix", ""),
        "nest": options.get("nest", False),
        "cast": _casts(options.get("cast"), "*"),
        "read_as": [f"{key}={dtype}" for key, dtype in _casts(options.get("read_as"), "*")],
        "untie": options.get("untie", False),
        "lossy": options.get("lossy", False),
        "replace": options.get("replace", False),
    }


def _renames(names: Mapping[str, str] | str | os.PathLike[str] | None) -> str | None:
    """Returns the text of a list of old and new keys."""
    if names is None:
        return None
    if isinstance(names, (str, os.PathLike)):
        return Path(names).read_text(encoding="utf-8")
    return json.dumps(dict(names))


def _casts(cast: DType | Mapping[str, DType] | None, every: str) -> list[tuple[str, str]]:
    """Returns pairs of a pattern and the name of a dtype. A single dtype gets the pattern `every`."""
    if cast is None:
        return []
    casts = cast if isinstance(cast, Mapping) else {every: cast}
    return [(pattern, dtype_name(dtype)) for pattern, dtype in casts.items()]


def _text(value: object) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
