"""Returns reports about checkpoints: the JSON that the command prints with `--json`, as Python objects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from . import _native
from ._checkpoint import Checkpoint, Source, located

Progress: TypeAlias = Callable[[int, int], object]
"""A callback `progress(done, total)`. `total` is 0 while it is unknown. The operation stops if the
callback raises an exception or returns `False`."""


def verify(
    source: Source | Checkpoint, *, finite: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Reads the whole checkpoint, checks its checksums, and counts NaN and infinities.

    Damage does not raise an exception: `report["sound"]` is false for a damaged checkpoint and, with
    `finite`, for one with NaN or infinities.

    >>> import pystatelens
    >>> report = pystatelens.verify("model.safetensors")
    >>> report["sound"], report["problems"]
    (True, [])
    """
    return _loaded(_native.verify(*located(source), finite, progress))


def scan(
    source: Source | Checkpoint,
    *,
    allow: Iterable[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Lists the code that the usual libraries would run while loading the file, without running it.

    `allow` lists names that are harmless, such as `package.module.Class`.

    >>> import pystatelens
    >>> pystatelens.scan("model.safetensors")["worst"] is None
    True
    """
    return _loaded(_native.scan(*located(source), list(allow), progress))


def diff(
    left: Source | Checkpoint,
    right: Source | Checkpoint,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    nan_differs: bool = False,
    ignore_dtype: bool = False,
    ignore_type: bool = False,
    structure: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compares two checkpoints of any formats, key by key and value by value.

    Values must be equal or, with `rtol` or `atol`, satisfy `|left - right| <= atol + rtol * |right|`.

    >>> import pystatelens
    >>> report = pystatelens.diff("model.safetensors", "trainer.pt")
    >>> report["matches"], report["differences"][0]["key"]
    (False, 'layers.0.weight')
    """
    tolerance = None
    if rtol is not None or atol is not None:
        tolerance = (1e-5 if rtol is None else rtol, 1e-8 if atol is None else atol)
    flags = (nan_differs, ignore_dtype, ignore_type, structure)
    return _loaded(_native.diff(*located(left), *located(right), tolerance, flags, progress))


def check(
    source: Source | Checkpoint,
    against: Source | Checkpoint | Mapping[str, Any] | Iterable[str],
    *,
    state: str | None = "model",
    strict: bool = True,
    release: str | None = None,
    strict_version: bool = True,
) -> dict[str, Any]:
    """Checks whether a checkpoint would load into another one or into a model, without reading weights.

    `against` is a checkpoint, a state dict (`model.state_dict()`), or a list of keys. If a side has the
    state `state`, only this state of it is compared.

    >>> import pystatelens
    >>> report = pystatelens.check("trainer.pt", ["layers.0.weight", "norm", "head"])
    >>> report["loads"], [missing["key"] for missing in report["missing"]]
    (False, ['head'])
    """
    reference: Any
    if isinstance(against, Checkpoint) or _is_source(against):
        reference = located(against)  # type: ignore[arg-type]
    elif isinstance(against, Mapping):
        reference = [(key, *_type(value)) for key, value in against.items()]
    else:
        reference = [(key, None, None) for key in against]  # type: ignore[union-attr]
    options = (state, strict, release, strict_version)
    return _loaded(_native.check(*located(source), reference, *options))


def stats(
    source: Source | Checkpoint,
    patterns: str | Iterable[str] = (),
    *,
    by: Literal["layer", "role", "dtype", "state"] | None = None,
    bins: int = 64,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Computes statistics of all tensors whose keys match a pattern: counts, NaN, extremes, moments,
    histograms and findings.

    A pattern is a glob, or a regular expression between slashes. `by` adds statistics of groups.

    >>> import pystatelens
    >>> tensor = pystatelens.stats("model.safetensors", "layers.*")["tensors"][0]
    >>> tensor["key"], tensor["min"], tensor["max"], tensor["mean"]
    ('layers.0.weight', 0.0, 23.0, 11.5)
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    return _loaded(_native.stats(*located(source), patterns, by, bins, progress))


def summary(
    source: Source | Checkpoint,
    to: Literal["text", "markdown", "html", "json"] = "text",
    *,
    stats: bool = False,
    content: bool = False,
    progress: Progress | None = None,
) -> str:
    """Summarises a checkpoint as text, Markdown, an HTML page or JSON, with repeated layers folded.

    `stats` adds statistics and `content` a fingerprint of the values; both read all values.

    >>> import pystatelens
    >>> print(pystatelens.summary("trainer.pt").splitlines()[0])
    trainer.pt
    """
    return _native.summary(*located(source), to, stats, content, progress)


def _loaded(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _is_source(value: object) -> bool:
    return isinstance(value, (str, os.PathLike, bytes)) or hasattr(value, "read")


def _type(value: Any) -> tuple[str | None, list[int] | None]:
    """Returns the dtype and shape of a tensor or array, and None twice for other values."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return None, None
    return str(value.dtype).removeprefix("torch."), [int(length) for length in shape]
