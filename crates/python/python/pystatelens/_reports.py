"""Returns reports about checkpoints: the JSON that the command prints with `--json`, as Python objects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

from . import _arguments as arguments
from . import _native
from ._arguments import Size, renames_text, size, strings, tolerance, whole
from ._checkpoint import OPENING, Checkpoint, Source, located
from ._dtypes import DType, dtype_name
from .reports import (
    CheckReport,
    DiffReport,
    FolderReport,
    LeafInfo,
    Level,
    Manifest,
    RenameReport,
    ScanReport,
    StatsReport,
    VerifyReport,
)

Progress: TypeAlias = Callable[[int, int], object]
"""A callback `progress(done, total)`. `total` is 0 while it is unknown. The operation stops if the
callback raises an exception or returns `False`."""


StateDict: TypeAlias = Mapping[Any, Any]
"""A state dict in memory: tensors of torch, arrays of NumPy, plain values."""


def verify(
    source: Source | Checkpoint | StateDict,
    *,
    finite: bool = False,
    manifest: str | os.PathLike[str] | Manifest | Mapping[str, Any] | None = None,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Reads the whole checkpoint, checks its checksums, and counts NaN and infinities.

    With `manifest`, the report of `manifest` or a file with one, also compares every value with it.
    `max_fetch` is the number of bytes that may be fetched from web servers, as in `open`.

    Damage does not raise an exception: `report["sound"]` is false for a damaged checkpoint and, with
    `finite`, for one with NaN or infinities, or with tensors that can't be checked for them
    (`report["not_checked"]`). Raises the other exceptions of `open`.

    >>> import pystatelens
    >>> report = pystatelens.verify("model.safetensors")
    >>> report["sound"], report["problems"]
    (True, [])
    """
    listed = _manifest(manifest)
    report: VerifyReport = _loaded(_native.verify(located(source, max_fetch), finite, listed, progress))
    return report


def manifest(
    source: Source | Checkpoint | StateDict,
    *,
    dequantize: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Returns the hash of each tensor and each plain value, from which `verify` later finds what changed.

    With `dequantize`, quantised weights are tensors of float32, as in `Checkpoint.dequantized`. Raises the exceptions of
    `open`, and `DamagedError` if a value can't be read.

    >>> import json, pathlib
    >>> import pystatelens
    >>> manifest = pystatelens.manifest("model.safetensors")
    >>> [entry["key"] for entry in manifest["entries"]]
    ['layers.0.weight', 'norm']
    >>> pystatelens.verify("model.safetensors", manifest=manifest)["sound"]
    True
    """
    place = located(source, max_fetch)
    if dequantize:
        place = located(Checkpoint(_native.dequantized(place, "float32")), max_fetch)
    report: Manifest = _loaded(_native.manifest(place, progress))
    return report


def ls(
    source: Source | Checkpoint | StateDict,
    patterns: str | Iterable[str] = (),
    *,
    tensors: bool = False,
    dtype: DType | Iterable[DType] = (),
    min_bytes: Size = 0,
    max_fetch: Size | None = None,
) -> list[LeafInfo]:
    """Lists the leaves in file order: key, kind, dtype, shape and size, or the value.

    A pattern is a glob, or a regular expression between slashes. `tensors` leaves out plain values, `dtype`
    lists tensors of some dtypes only, and `min_bytes` those of at least this size, a number or a text such as
    `1MB`. No weights are read. The list is a table for pandas and polars. Sort it as any other: `sorted(leaves, key=lambda leaf: leaf["bytes"])`.

    >>> import pystatelens
    >>> [(leaf["key"], leaf["kind"]) for leaf in pystatelens.ls("trainer.pt", "*e*")]
    [('model.layers.0.weight', 'tensor'), ('model.norm', 'tensor'), ('epoch', 'int')]
    """
    several = isinstance(dtype, Iterable) and not isinstance(dtype, (str, type))
    dtypes: list[Any] = list(dtype) if several else [dtype]  # type: ignore[arg-type]
    least = size("min_bytes", min_bytes) or 0
    options = (strings(patterns), tensors, [dtype_name(one) for one in dtypes], least)
    listed: list[LeafInfo] = json.loads(_native.ls(located(source, max_fetch), *options))["entries"]
    return listed


def scan(
    source: Source | Checkpoint,
    *,
    allow: str | Iterable[str] = (),
    max_fetch: Size | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> ScanReport:
    """Lists the code that the usual libraries would run while loading the file, without running it.

    `allow` lists names that are harmless, such as `package.module.Class`. Raises `IoError` if the file can't be
    read; a damaged file is scanned as far as it goes. `limit` multiplies the limits on memory and work, as in
    `open`.

    >>> import pystatelens
    >>> pystatelens.scan("model.safetensors")["worst"] is None
    True
    """
    options = {**OPENING, "limit": arguments.limit(limit)}
    report: ScanReport = _loaded(_native.scan(located(source, max_fetch), strings(allow), options, progress))
    return report


class CompareOptions(TypedDict, total=False):
    """Options of `diff` and `renames`."""

    rtol: float | None
    atol: float | None
    nan_differs: bool
    ignore_dtype: bool
    ignore_type: bool
    structure: bool
    select: str | Iterable[str]
    exclude: str | Iterable[str]
    strip_prefix: str
    rename: Mapping[str, str] | None
    rename_map: Mapping[str, str] | str | os.PathLike[str] | None
    prefix: str


def diff(
    left: Source | Checkpoint | StateDict,
    right: Source | Checkpoint | StateDict,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    nan_differs: bool = False,
    ignore_dtype: bool = False,
    ignore_type: bool = False,
    structure: bool = False,
    select: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    strip_prefix: str = "",
    rename: Mapping[str, str] | None = None,
    rename_map: Mapping[str, str] | str | os.PathLike[str] | None = None,
    prefix: str = "",
    sort: Literal["key", "change"] = "key",
    by_layer: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> DiffReport:
    """Compares two checkpoints of any formats, or state dicts, key by key and value by value.

    Values must be equal or, with `rtol` or `atol`, satisfy `|left - right| <= atol + rtol * |right|`. A NaN
    equals a NaN in the same place unless `nan_differs`. `ignore_dtype` compares the numbers of tensors with
    different dtypes, `ignore_type` those of arrays and tensors, and `structure` also compares classes of containers,
    nesting and ties.

    `select` and `exclude` are patterns of keys, on both sides, as they are in the files. The keys of `left` get
    new names by `strip_prefix`, `rename`, `rename_map` and `prefix`, as in `convert`. `sort="change"` lists the
    largest changes first, and `by_layer` adds norms and changes layer by layer, as `report["roles"]`.

    Raises the exceptions of `open`, and `RefusedError` if a tolerance is negative or not finite, or if no key
    matches.

    >>> import pystatelens
    >>> report = pystatelens.diff("model.safetensors", "trainer.pt")
    >>> report["matches"], report["differences"][0]["key"]
    (False, 'layers.0.weight')
    >>> pystatelens.diff("model.safetensors", "trainer.pt", prefix="model.", select=["model.*", "l*", "n*"])["matches"]
    True
    """
    if sort not in ("key", "change"):
        raise arguments.refused(f"sort is {sort!r}", "Expected `key` or `change`.")
    options = compared(
        rtol=rtol,
        atol=atol,
        nan_differs=nan_differs,
        ignore_dtype=ignore_dtype,
        ignore_type=ignore_type,
        structure=structure,
        select=select,
        exclude=exclude,
        strip_prefix=strip_prefix,
        rename=rename,
        rename_map=rename_map,
        prefix=prefix,
    )
    options |= {"by_change": sort == "change", "by_layer": by_layer}
    sides = (located(left, max_fetch), located(right, max_fetch))
    report: DiffReport = _loaded(_native.diff(*sides, options, progress))
    return report


def renames(
    left: Source | Checkpoint | StateDict,
    right: Source | Checkpoint | StateDict,
    *,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompareOptions],
) -> RenameReport:
    """Finds tensors that have another key on the other side: by equal bytes, then by shape and order.

    Takes the options of `diff`. The pairs are what `rename_map` of `convert` and `diff` takes:

    >>> import pystatelens
    >>> report = pystatelens.renames("model.safetensors", "trainer.pt")
    >>> {pair["left"]: pair["right"] for pair in report["renames"]}
    {'layers.0.weight': 'model.layers.0.weight', 'norm': 'model.norm'}
    """
    unknown = options.keys() - CompareOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")
    native = compared(**options) | {"by_change": False, "by_layer": False}
    sides = (located(left, max_fetch), located(right, max_fetch))
    report: RenameReport = _loaded(_native.renames(*sides, native, progress))
    return report


def compared(**options: Unpack[CompareOptions]) -> dict[str, Any]:
    """Returns the options of a comparison as the extension module takes them."""
    relative, absolute = tolerance("rtol", options.get("rtol")), tolerance("atol", options.get("atol"))
    limits = None
    if relative is not None or absolute is not None:
        limits = (1e-5 if relative is None else relative, 1e-8 if absolute is None else absolute)
    flags = {name: options.get(name, False) for name in ("nan_differs", "ignore_dtype", "ignore_type", "structure")}
    return {
        **flags,
        "tolerance": limits,
        "select": strings(options.get("select", ())),
        "exclude": strings(options.get("exclude", ())),
        "strip_prefix": options.get("strip_prefix", ""),
        "rename": list((options.get("rename") or {}).items()),
        "rename_map": renames_text(options.get("rename_map")),
        "prefix": options.get("prefix", ""),
    }


def info(
    source: Source | Checkpoint | StateDict,
    *,
    model: bool = False,
    config: str | os.PathLike[str] | None = None,
    max_fetch: Size | None = None,
) -> dict[str, Any]:
    """Describes a checkpoint: format, files, counts by dtype and state, findings and the model. Reads no
    weights.

    The model is recognised from names, shapes and its config: the file `config`, or that in the same folder. With
    more than 10,000 keys, it is described only if `model` is true. `report["groups"]` has the attributes of the file,
    by key; those of the empty key are the `__metadata__` of safetensors. Raises the exceptions of `open`.

    >>> import pystatelens
    >>> report = pystatelens.info("model.safetensors")
    >>> report["format"]["title"], report["tensors"], report["model_parameters"]
    ('safetensors', 2, 30)
    """
    named = None if config is None else os.fspath(config)
    report: dict[str, Any] = _loaded(_native.info(located(source, max_fetch), model, named))
    return report


@overload
def check(
    source: str | os.PathLike[str],
    against: None = None,
    *,
    levels: Mapping[str, Level] = ...,
    fix_index: bool = False,
) -> FolderReport: ...


@overload
def check(
    source: Source | Checkpoint | StateDict,
    against: Source | Checkpoint | Mapping[str, Any] | Iterable[str | LeafInfo],
    *,
    state: str | None = "model",
    strict: bool = True,
    release: str | None = None,
    strict_version: bool = True,
    max_fetch: Size | None = None,
) -> CheckReport: ...


def check(
    source: Source | Checkpoint | StateDict,
    against: Source | Checkpoint | Mapping[str, Any] | Iterable[str | LeafInfo] | None = None,
    *,
    levels: Mapping[str, Level] = MappingProxyType({}),
    fix_index: bool = False,
    state: str | None = "model",
    strict: bool = True,
    release: str | None = None,
    strict_version: bool = True,
    max_fetch: Size | None = None,
) -> CheckReport | FolderReport:
    """Checks whether a folder with a model is whole and consistent, or whether a checkpoint would
    load into another one or into a model. Reads no weights.

    Without `against`, `source` is the path of a folder, or of a file for its checkpoint. Files, indexes,
    shards, layers, `config.json` and the tokenizer are compared with each other. `levels` sets the level of
    rules, which docs/rules.md lists: `{"dtype-differs": "off"}`. `fix_index` first writes a correct index for the shards
    of a folder, which stay unchanged; the previous index is kept with `.bak` at the end of its name.

    >>> import pystatelens
    >>> report = pystatelens.check("model.safetensors")
    >>> report["whole"], report["findings"]
    (True, [])

    `against` is a checkpoint, a state dict (`model.state_dict()`), a list of keys or what `ls` returns, the report of
    `manifest`, or the path of a file with one of these: a line of a list is `key dtype shape`, or a key alone. If a side
    has the state `state`, only this state of it is compared; None compares all. Raises the exceptions of `open`.

    >>> report = pystatelens.check("trainer.pt", ["layers.0.weight", "norm", "head"])
    >>> report["loads"], [missing["key"] for missing in report["missing"]]
    (False, ['head'])
    """
    if against is None:
        if not isinstance(source, (str, os.PathLike)):
            raise TypeError("a folder is checked by its path; pass `against` to compare a checkpoint")
        rules = [f"{rule}={level}" for rule, level in levels.items()]
        folder: FolderReport = _loaded(_native.check_folder(os.fspath(source), rules, fix_index))
        return folder
    reference = _reference(against, max_fetch)
    options = (state, strict, release, strict_version)
    report: CheckReport = _loaded(_native.check(located(source, max_fetch), reference, *options))
    return report


def stats(
    source: Source | Checkpoint | StateDict,
    patterns: str | Iterable[str] = (),
    *,
    where: str | Iterable[str] = (),
    by: Literal["layer", "role", "dtype", "state"] | None = None,
    rows: bool = False,
    bins: int = 64,
    scale: Literal["linear", "log"] = "linear",
    fail_on: str | Iterable[str] = (),
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> StatsReport:
    """Computes statistics of all tensors whose keys match a pattern: counts, NaN, extremes, moments,
    histograms and findings.

    A pattern is a glob, or a regular expression between slashes. `where` keeps tensors for which all conditions
    hold, such as `nan>0`, `std<1e-6` or `zeros>50%`. `by` adds statistics of groups, and `rows` those of each row
    and column of the matrices. `bins` is the number of bins of histograms, and `scale` their spacing. Weights that
    are stored as codes and scales are measured as numbers, unless a pattern is the key of codes.

    `fail_on` lists what is not accepted: `nan`, `inf`, `zero` (tensors that are all zero), `constant` (all values are the
    same). `report["failed_on"]` has the keys of such tensors, and `report["not_checked"]` those that can't be checked.

    Raises the exceptions of `open`, and `RefusedError` for a pattern that is not a regular expression, or a condition
    that is not one.

    >>> import pystatelens
    >>> tensor = pystatelens.stats("model.safetensors", "layers.*")["tensors"][0]
    >>> tensor["key"], tensor["min"], tensor["max"], tensor["mean"]
    ('layers.0.weight', 0.0, 23.0, 11.5)
    >>> [tensor["key"] for tensor in pystatelens.stats("model.safetensors", where="std=0")["tensors"]]
    ['norm']
    >>> pystatelens.stats("model.safetensors", fail_on=["nan", "constant"])["failed_on"]
    ['norm']
    """
    if scale not in ("linear", "log"):
        raise arguments.refused(f"scale is {scale!r}", "Expected `linear` or `log`.")
    options = {
        "patterns": strings(patterns),
        "conditions": strings(where),
        "by": by,
        "bins": whole("bins", bins, 1, 65_535),
        "log": scale == "log",
        "rows": rows,
        "fail_on": [name for text in strings(fail_on) for name in text.split(",")],
    }
    report: StatsReport = _loaded(_native.stats(located(source, max_fetch), options, progress))
    return report


def summary(
    source: Source | Checkpoint | StateDict,
    to: Literal["text", "markdown", "html", "json", "svg"] = "text",
    *,
    stats: bool = False,
    content: bool = False,
    link: str | None = None,
    keys: Literal["plain", "coded", "hidden"] = "plain",
    values: bool = False,
    findings: bool = True,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
) -> str:
    """Summarises a checkpoint as text, Markdown, an HTML page, JSON or a picture, with repeated layers folded.

    `stats` adds statistics and `content` a fingerprint of the values; both read all values.

    With `link`, the address of a page of Statelens, returns an address that holds the structure after its `#`, which
    browsers don't send to servers. `keys` says how keys appear in it: as they are, each part as four letters, or not at
    all; `values` adds values that are not tensors, and `findings` the findings.

    >>> import pystatelens
    >>> print(pystatelens.summary("trainer.pt").splitlines()[0])
    trainer.pt
    >>> pystatelens.summary("trainer.pt", link="https://example.org/", keys="hidden").startswith("https://example.org/#s=")
    True
    """
    place = located(source, max_fetch)
    if link is None:
        return _native.summary(place, to, stats, content, progress)
    if to != "text" or content:
        raise arguments.refused("`link` takes neither `to` nor `content`", "Leave them out.")
    options = {"base": link, "keys": keys, "values": values, "findings": findings, "stats": stats}
    return _native.link(place, options, progress)


def _manifest(
    manifest: str | os.PathLike[str] | Manifest | Mapping[str, Any] | None,
) -> bytes | None:
    if manifest is None:
        return None
    if isinstance(manifest, (str, os.PathLike)):
        return Path(manifest).read_bytes()
    return json.dumps(manifest).encode()


def _loaded(text: str) -> Any:
    return json.loads(text)


def _is_source(value: object) -> bool:
    kinds = (str, os.PathLike, bytes, bytearray, memoryview)
    # `fsspec.core.OpenFile` has `open`.
    return isinstance(value, kinds) or hasattr(value, "read") or hasattr(value, "open")


def _reference(against: Any, max_fetch: Size | None) -> Any:
    """Returns what a checkpoint is checked against, as the extension module takes it."""
    if isinstance(against, Checkpoint) or _is_source(against):
        return located(against, max_fetch)
    if isinstance(against, Mapping) and "statelens" in against and "entries" in against:
        return [_expected(entry) for entry in against["entries"]]
    if isinstance(against, Mapping):
        return [(key, *_type(value)) for key, value in against.items()]
    return [_expected(entry) for entry in against]


def _expected(entry: str | Mapping[str, Any]) -> tuple[str, str | None, list[int] | None]:
    """Returns the key, dtype and shape of an entry of a list."""
    if isinstance(entry, str):
        return entry, None, None
    return entry["key"], entry.get("dtype"), entry.get("shape")


def _type(value: Any) -> tuple[str | None, list[int] | None]:
    """Returns the dtype and shape of a tensor or array, and None twice for other values."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return None, None
    return str(value.dtype).removeprefix("torch."), [int(length) for length in shape]
