"""Converts checkpoints to other formats and to other implementations of a model."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from . import _native
from ._arguments import Size, refused, renames_text, size, strings
from ._checkpoint import OPENING, Checkpoint, Located, Source, located
from ._dtypes import DType, casts, dtype_name
from ._functions import called, command_arguments
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
    sync: bool


def convert(
    source: Source | Checkpoint | Mapping[Any, Any],
    path: str | os.PathLike[str] | None = None,
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
    sync: bool = False,
    dequantize: DType | None = None,
    update: Mapping[str, Any] | None = None,
    drop: str | Iterable[str] = (),
    in_place: bool = False,
    dry_run: bool | Literal["scan"] = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Converts a checkpoint to another format, in bounded memory.

    The output: `to` names the format (`safetensors`, `torch`, `cerebras`, `tensorflow`, `npz`, or the id of
    a format that is written, such as `torch-zip`). The default depends on the extension of `path`.
    `version` is that of the format, `0.5` or `0.4` for Cerebras, and `compression` its method, `lz4` or
    `gzip`, which only Cerebras has. `shard_size` splits the output into files of at most this many bytes of
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

    `dequantize` is the dtype of quantised weights, which become tensors of numbers without their scales: exactly in
    float32, or rounded to bfloat16 or float16. Write the `config.json` for the output without `quantization_config`.

    `in_place`, without `path`, replaces the file `source` once the new one is complete and has been read back.

    A conversion that loses something is refused unless `lossy` is true, and files are replaced only with
    `replace`. `dry_run` writes nothing and returns the plan; `"scan"` also counts what casts would do.

    The files get their names when all are complete and have been read back; `sync` waits until they are on the disk, as
    is always done before a file is replaced. Returns the report that
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
        sync=sync,
    )
    if in_place:
        if path is not None or update or dequantize is not None:
            what = "`in_place` takes neither `path` nor `update` nor `dequantize`"
            raise refused(what, "Write another file, and rename it.")
        return _in_place(source, options, dry_run, max_fetch, progress)
    if path is None:
        raise TypeError("`path` is missing: it is left out only with `in_place`")
    opened = located(source, max_fetch)
    if dequantize is not None:
        opened = (_native.dequantized(opened, dtype_name(dequantize)), "", opened[2])
    place = (_updated(opened, update or {}), os.fspath(path), options)
    if dry_run:
        report = _native.plan_conversion(*place, dry_run == "scan", progress)
    else:
        report = _native.convert(*place, progress)
    loaded: ConvertReport = json.loads(report)
    return loaded


def _in_place(
    source: object,
    options: dict[str, Any],
    dry_run: bool | str,
    max_fetch: Size | None,
    progress: Progress | None,
) -> ConvertReport:
    """Replaces a file on disk with its conversion."""
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError("only a file on disk can be replaced in place; name its path")
    with tempfile.TemporaryDirectory() as folder:
        names = None
        if options["rename_map"] is not None:
            names = Path(folder) / "names"
            names.write_text(options["rename_map"], encoding="utf-8")
        arguments = command_arguments(
            in_place=True,
            to=options["to"],
            format_version=options["version"],
            compress=options["compression"],
            shard_size=options["shard_size"],
            object_graph=options["object_graph"],
            state_file=options["state_file"],
            select=options["select"],
            exclude=options["exclude"],
            states=options["states"],
            rename=[f"{old}=>{new}" for old, new in options["rename"]],
            rename_map=names,
            strip_prefix=options["strip_prefix"] or None,
            prefix=options["prefix"] or None,
            nest=options["nest"],
            cast=[f"{pattern}={dtype}" for pattern, dtype in options["cast"]],
            read_as=options["read_as"],
            untie=options["untie"],
            lossy=options["lossy"],
            dry_run=bool(dry_run),
            scan=dry_run == "scan",
        )
        reports = called("convert", source, arguments=arguments, max_fetch=max_fetch, progress=progress)
    report: ConvertReport = reports[0]  # type: ignore[assignment]
    return report


def _updated(place: Located, update: Mapping[str, Any]) -> Located:
    """Returns a source in which some keys have other values."""
    if not update:
        return place
    from ._savers import described

    source, _, fetch = place
    native = source if isinstance(source, _native.Checkpoint) else _native.open(place, OPENING)
    return _native.updated(native, dict(update), described), "", fetch


def convert_model(
    checkpoint: str | os.PathLike[str],
    to: str,
    *,
    model: str | None = None,
    src_fmt: str | None = None,
    config: str | os.PathLike[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    hf_shard_size: Size | None = None,
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
    sync: bool = False,
    dry_run: bool | Literal["scan"] = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Converts a model and its config to another implementation: `to` is `hf`, `cs-2.9`, `cs-current`, `meta` or
    another that `list_converters` names.

    `checkpoint` is a file, an index of shards, an address or a folder. `model` and `src_fmt` are recognised if
    they are not given, and `config` is that in the same folder. The files are written to `output_dir`, by default
    the folder of the checkpoint; those of Hugging Face are split at `hf_shard_size` (default: 10 GB), and are
    pickles unless `export_safetensors`. Keys that no rule covers are refused unless `drop_unmatched_keys`. `unwrap`
    removes prefixes of wrappers such as `module.`; `with_optimizer` also converts the optimizer's moments;
    `fold_lora` folds LoRA into the weights first; `ranks` is the number of files in a format with one for each rank;
    `cast` is a dtype or maps patterns of new keys to dtypes; `recipe` is a recipe of your own. `lossy`, `replace`,
    `sync`, `dry_run` and `max_fetch` are those of `convert`.

    Returns a report for each checkpoint that it wrote. Notes are warnings of the class `StatelensWarning`.
    Raises `RefusedError` if the model is not recognised or something would be lost, and the exceptions of
    `convert`.
    """
    arguments = command_arguments(
        tgt_fmt=to,
        model=model,
        src_fmt=src_fmt,
        config=config,
        output_dir=output_dir,
        hf_shard_size=size("hf_shard_size", hf_shard_size),
        export_safetensors=export_safetensors,
        drop_unmatched_keys=drop_unmatched_keys,
        unwrap=unwrap,
        with_optimizer=with_optimizer,
        fold_lora=fold_lora,
        ranks=ranks,
        recipe=recipe,
        cast=[f"{key}={dtype}" if key else dtype for key, dtype in _casts(cast, "")],
        lossy=lossy,
        force=replace,
        sync=sync,
        dry_run=bool(dry_run),
        scan=dry_run == "scan",
    )
    return called("convert-model", checkpoint, arguments=arguments, max_fetch=max_fetch, progress=progress)


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
        "rename_map": renames_text(options.get("rename_map")),
        "strip_prefix": options.get("strip_prefix", ""),
        "prefix": options.get("prefix", ""),
        "nest": options.get("nest", False),
        "cast": _casts(options.get("cast"), "*"),
        "read_as": casts(options.get("read_as")),
        "untie": options.get("untie", False),
        "lossy": options.get("lossy", False),
        "replace": options.get("replace", False),
        "sync": options.get("sync", False),
    }


def _casts(cast: DType | Mapping[str, DType] | None, every: str) -> list[tuple[str, str]]:
    """Returns pairs of a pattern and the name of a dtype. A single dtype gets the pattern `every`."""
    if cast is None:
        return []
    casts = cast if isinstance(cast, Mapping) else {every: cast}
    return [(pattern, dtype_name(dtype)) for pattern, dtype in casts.items()]
