"""Returns reports about single tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, Literal, Unpack

from . import _arguments as arguments
from . import _native
from ._arguments import Path, Size, strings, whole
from ._checkpoint import Checkpoint, Source, located
from ._reports import CompareOptions, Progress, StateDict, compared
from ._tensor import Tensor
from .reports import RankReport, SingularReport, TensorDiffReport


def rank(
    tensor: Tensor,
    lines: Literal["rows", "columns", "kernels"] = "rows",
    *,
    top: int = 10,
    progress: Progress | None = None,
) -> RankReport:
    """Ranks the rows, columns or kernels of a matrix by their norm: the `top` largest and smallest.

    `tensor` is one of an open checkpoint, or a slice of it. In a tensor of more than two dimensions, each index
    into all but the last one is a row; a kernel is the last two dimensions together. Raises `RefusedError` if it
    has no rows, and `UnsupportedError` if its values are not numbers.

    >>> import pystatelens
    >>> report = pystatelens.rank(pystatelens.open("model.safetensors")["layers.0.weight"], top=1)
    >>> report["largest"][0]["index"], report["smallest"][0]["index"]
    ([3], [0])
    """
    native = _opened(tensor)
    most = whole("top", top, 0, 2**32 - 1)
    report: RankReport = json.loads(_native.rank(native, lines, most, progress))
    return report


def singular(
    tensor: Tensor,
    *,
    all: bool = False,
    top: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> SingularReport:
    """Finds the singular values of a matrix, its rank and its condition, in bounded memory.

    `tensor` is one of an open checkpoint, or a slice of it. If the smaller side of the matrix is at most 1,024, all
    singular values are computed, or with `all` up to 4,096; otherwise the `top` largest (default: 32), each with an
    error bound in `report["errors"]`. `dry_run` estimates the cost and reads nothing. Raises `RefusedError` if the
    tensor is not a matrix, or if values are NaN or infinite.

    >>> import pystatelens
    >>> report = pystatelens.singular(pystatelens.open("model.safetensors")["layers.0.weight"])
    >>> report["rank"], round(report["values"][0], 3)
    (2, 65.624)
    """
    if all and top is not None:
        raise arguments.refused("`all` and `top` exclude each other", "Leave one of them out.")
    count = None if top is None else whole("top", top, 1, 64)
    report: SingularReport = json.loads(_native.singular(_opened(tensor), all, count, dry_run, progress))
    return report


def tensor_diff(
    left: Source | Checkpoint | StateDict,
    right: Source | Checkpoint | StateDict,
    keys: str | Iterable[str],
    *,
    scale: Literal["linear", "log"] = "linear",
    bins: int = 24,
    picture: Path | None = None,
    replace: bool = False,
    sync: bool = False,
    max_fetch: Size | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompareOptions],
) -> TensorDiffReport:
    """Compares tensors of two checkpoints in detail: statistics and histograms of both sides and of `right - left`, and
    where they differ.

    `keys` are those of the tensors, or of a single one. `bins` and `scale` are those of the histograms. `picture` is
    the path of a `.png` or `.svg` for the difference of a single tensor, in blocks. The other options are those of
    `diff` that rename keys. Raises `RefusedError` if the shapes differ.

    >>> import numpy as np
    >>> import pystatelens
    >>> report = pystatelens.tensor_diff("model.safetensors", {"norm": np.full(6, 3, "f4")}, "norm", select="norm")
    >>> report["tensors"][0]["differing"], report["tensors"][0]["difference"]["mean"]
    (6, 2.0)
    """
    names = strings(keys)
    if picture is not None and len(names) != 1:
        raise arguments.refused("a picture is that of one tensor", "Name one key.")
    unknown = options.keys() - CompareOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no option {min(unknown)!r}")
    native = compared(**options) | {"by_change": False, "by_layer": False}
    sides = (located(left, max_fetch), located(right, max_fetch))
    path = None if picture is None else os.fspath(picture)
    count = whole("bins", bins, 1, 10_000)
    drawing = drawing_options(scale, replace, sync)
    text = _native.tensor_diff(*sides, names, native, count, path, drawing, progress)
    report: TensorDiffReport = json.loads(text)
    return report


def picture(
    tensor: Tensor,
    path: Path,
    *,
    width: int = 1024,
    height: int = 640,
    scale: Literal["linear", "log"] = "linear",
    replace: bool = False,
    sync: bool = False,
    progress: Progress | None = None,
) -> int:
    """Draws a matrix of any size into a `.png` or `.svg`, in blocks that have the colour of their value of largest
    magnitude: orange for positive, blue for negative, magenta for NaN and infinities. Returns the bytes of the file.

    `tensor` is one of an open checkpoint, or a slice of it. It is read once. `width` and `height` limit the map in
    pixels, without axes, and `scale` says how numbers map to colours. Raises `RefusedError` if it is not a matrix, and
    `ExistsError` if the file exists.

    >>> import pathlib
    >>> import pystatelens
    >>> count = pystatelens.picture(pystatelens.open("model.safetensors")["layers.0.weight"], "weight.png")
    >>> count == pathlib.Path("weight.png").stat().st_size
    True
    """
    size = (whole("width", width, 1, 16_384), whole("height", height, 1, 16_384))
    drawing = drawing_options(scale, replace, sync)
    return _native.draw(_opened(tensor), os.fspath(path), size, drawing, progress)


def drawing_options(scale: str, replace: bool, sync: bool) -> dict[str, Any]:
    """Returns the options of a picture as the extension module takes them."""
    if scale not in ("linear", "log"):
        raise arguments.refused(f"scale is {scale!r}", "Expected `linear` or `log`.")
    return {"log": scale == "log", "replace": replace, "sync": sync}


def _opened(tensor: Tensor) -> _native.Tensor:
    """Returns the tensor of an open checkpoint."""
    native = getattr(tensor, "_native", None)
    if not isinstance(native, _native.Tensor):
        raise TypeError(f"expected a tensor of an open checkpoint, not {type(tensor).__name__}")
    return native
