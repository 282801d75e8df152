"""Converts checkpoints to other formats and to other implementations of a model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from . import _native
from ._checkpoint import Checkpoint, Source, located
from ._dtypes import DType, dtype_name
from ._reports import Progress


class ConvertOptions(TypedDict, total=False):
    """Options of `convert`."""

    to: str | None
    version: str | None
    compression: str | None
    shard_size: str | None
    select: str | Iterable[str]
    exclude: str | Iterable[str]
    states: str | Iterable[str]
    rename: Mapping[str, str] | None
    strip_prefix: str
    prefix: str
    cast: DType | Mapping[str, DType] | None
    untie: bool
    lossy: bool
    replace: bool


def convert(
    source: Source | Checkpoint,
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    version: str | None = None,
    compression: str | None = None,
    shard_size: str | None = None,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    states: str | Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    strip_prefix: str = "",
    prefix: str = "",
    cast: DType | Mapping[str, DType] | None = None,
    untie: bool = False,
    lossy: bool = False,
    replace: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Converts a checkpoint to another format, in bounded memory.

    `to` names the format (`safetensors`, `torch`, `cerebras`, `tensorflow`, `npz`). The default depends
    on the extension of `path`. `select`, `exclude` and the keys of `cast` are globs, or regular
    expressions between slashes. `rename` maps regular expressions to replacements, in which `$1` is a
    group. `cast` is a dtype for all floating-point tensors, or maps patterns to dtypes. A conversion
    that loses something is refused unless `lossy` is true.

    The files get their names when all are complete and have been read back. Returns the report that
    `statelens convert --json` prints.

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
        select=select,
        exclude=exclude,
        states=states,
        rename=rename,
        strip_prefix=strip_prefix,
        prefix=prefix,
        cast=cast,
        untie=untie,
        lossy=lossy,
        replace=replace,
    )
    report = _native.convert(*located(source), os.fspath(path), options, progress)
    loaded: dict[str, Any] = json.loads(report)
    return loaded


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
    unknown = options.keys() - ConvertOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")
    return {
        "to": options.get("to"),
        "version": options.get("version"),
        "compression": options.get("compression"),
        "shard_size": options.get("shard_size"),
        "select": _list(options.get("select", ())),
        "exclude": _list(options.get("exclude", ())),
        "states": _list(options.get("states", ())),
        "rename": list((options.get("rename") or {}).items()),
        "strip_prefix": options.get("strip_prefix", ""),
        "prefix": options.get("prefix", ""),
        "cast": _casts(options.get("cast"), "*"),
        "untie": options.get("untie", False),
        "lossy": options.get("lossy", False),
        "replace": options.get("replace", False),
    }


def _casts(cast: DType | Mapping[str, DType] | None, every: str) -> list[tuple[str, str]]:
    """Returns pairs of a pattern and the name of a dtype. A single dtype gets the pattern `every`."""
    if cast is None:
        return []
    casts = cast if isinstance(cast, Mapping) else {every: cast}
    return [(pattern, dtype_name(dtype)) for pattern, dtype in casts.items()]


def _list(strings: str | Iterable[str]) -> list[str]:
    return [strings] if isinstance(strings, str) else list(strings)


def _text(value: object) -> str:
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
