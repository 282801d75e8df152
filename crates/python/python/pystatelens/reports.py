"""Types of the reports. `docs/json.md` explains their fields.

Fields with `NotRequired` are missing where they do not apply. Later versions may add fields.
"""

# Without `from __future__ import annotations`, so that `__required_keys__` is right.
from typing import Any, NotRequired, TypeAlias, TypedDict

__all__ = [
    "CallFound",
    "CastCounts",
    "CastReport",
    "CheckReport",
    "CommitReport",
    "ConvertReport",
    "Difference",
    "DiffReport",
    "Finding",
    "FolderReport",
    "GroupStatistics",
    "Histogram",
    "LeafInfo",
    "Level",
    "LineStatistics",
    "Loss",
    "Manifest",
    "NotFinite",
    "Problem",
    "RankReport",
    "RankedLine",
    "RenameReport",
    "Renamed",
    "RuleFinding",
    "ScanReport",
    "SingularReport",
    "Statistics",
    "StatsReport",
    "TensorDiff",
    "TensorDiffReport",
    "TensorStatistics",
    "TypeDifference",
    "UnreadTensor",
    "VerifyReport",
]


class CallFound(TypedDict):
    """A call that loading a file would make."""

    module: str
    name: str
    arguments: str


class Finding(TypedDict):
    """A result about a file."""

    grade: str
    title: str
    detail: str
    place: str
    advice: str
    missing: NotRequired[Any]
    call: NotRequired[CallFound]


class Problem(TypedDict):
    """A problem that `verify` found."""

    what: str
    text: str
    key: NotRequired[str | None]
    file: NotRequired[str | None]
    offset: NotRequired[int | None]
    expected: NotRequired[Any]
    found: NotRequired[Any]


class NotFinite(TypedDict):
    """A tensor with NaN or infinities."""

    key: str
    nan: int
    inf: int
    elements: int
    first: list[int]


class VerifyReport(TypedDict):
    """The report of `verify`."""

    statelens: int
    sound: bool
    verdict: str
    grade: str
    problems: list[Problem]
    tensors: int
    bytes: int
    checksums: dict[str, int]
    without_checksum: int
    unchecked_tensors: int
    unread: list[Any]
    not_finite: list[NotFinite]
    not_finite_values: NotRequired[list[NotFinite]]
    not_checked: NotRequired[list[dict[str, Any]]]
    manifest: NotRequired[Any]


class ScanReport(TypedDict):
    """The report of `scan`."""

    statelens: int
    worst: str | None
    findings: list[Finding]


class Difference(TypedDict):
    """A difference between two checkpoints."""

    key: str
    what: str
    parameter: NotRequired[str]
    right_parameter: NotRequired[str]
    part: NotRequired[str]
    left: NotRequired[Any]
    right: NotRequired[Any]
    why: NotRequired[str]
    values: NotRequired[Any]
    precision: NotRequired[Any]
    beyond_precision: NotRequired[int]
    elements: NotRequired[int]
    differing: NotRequired[int]
    unequal: NotRequired[int]
    first: NotRequired[list[int] | None]
    left_nan: NotRequired[int]
    right_nan: NotRequired[int]
    nan_on_one_side: NotRequired[int]
    finite: NotRequired[int]
    max_abs: NotRequired[float | str | None]
    max_rel: NotRequired[float | str | None]
    mse: NotRequired[float | str | None]
    cosine: NotRequired[float | str | None]
    change: NotRequired[float | str | None]
    finite_max_abs: NotRequired[float | str | None]
    spread: NotRequired[dict[str, Any]]


class DiffReport(TypedDict):
    """The report of `diff`."""

    statelens: int
    matches: bool
    keys: int
    tensors: int
    elements: int
    close: int
    equal_nans: int
    by_number: bool
    differences: list[Difference]
    roles: NotRequired[list[dict[str, Any]]]


class Renamed(TypedDict):
    """A tensor that has another key on the other side."""

    left: str
    right: str
    basis: str


class RenameReport(TypedDict):
    """The report of `renames`."""

    statelens: int
    renames: list[Renamed]
    left_alone: int
    right_alone: int


class TypeDifference(TypedDict):
    """A tensor whose shape or dtype is not the expected one."""

    key: str
    file: Any
    expected: Any


class CheckReport(TypedDict):
    """The report of `check`."""

    statelens: int
    loads: bool
    file_state: str | None
    reference_state: str | None
    prefixed: bool
    matching: int
    missing: list[dict[str, Any]]
    unexpected: list[dict[str, Any]]
    shapes: list[TypeDifference]
    dtypes: list[TypeDifference]
    rename: dict[str, Any] | None
    nothing: bool
    damage: list[Any]
    format: Any
    release: dict[str, Any] | None


Level: TypeAlias = str
"""How much a finding of `check` matters: `"off"`, `"note"`, `"warning"` or `"error"`."""


class RuleFinding(TypedDict):
    """What a rule of `check` found in a folder. docs/rules.md lists the rules."""

    rule: str
    level: Level
    file: str
    key: str
    text: str
    fix: str


class FolderReport(TypedDict):
    """The report of `check` about a folder."""

    statelens: int
    whole: bool
    errors: int
    warnings: int
    weight_files: int
    tensors: int
    findings: list[RuleFinding]


class Histogram(TypedDict):
    """Counts of values between edges, one edge more than counts."""

    edges: list[float]
    counts: list[int]


class Statistics(TypedDict):
    """Statistics of values. Those that do not exist are `None`; NaN and infinities are strings."""

    count: int
    nan: int
    pos_inf: int
    neg_inf: int
    zeros: int
    subnormal: int
    min: Any
    max: Any
    mean: Any
    std: Any
    l1: Any
    l2: Any
    abs_mean: Any
    abs_max: Any
    quantiles: dict[str, Any]
    quantiles_exact: bool
    histogram: Histogram
    beyond_6_std: int | None
    kurtosis: Any
    all_equal: bool
    all_zero: bool


class LineStatistics(TypedDict):
    """Statistics of each row or column of a matrix."""

    abs_max: list[float | str]
    norm: list[float | str]
    not_finite: list[int]


class TensorStatistics(Statistics):
    """Statistics of a tensor."""

    key: str
    dtype: str
    shape: list[int]
    alias_of: NotRequired[str]
    abs_max_at: list[int] | None
    first_nan: list[int] | None
    first_inf: list[int] | None
    min_exact: NotRequired[str]
    max_exact: NotRequired[str]
    zero_rows: int | None
    copied_rows: int | None
    rows: NotRequired[LineStatistics | None]
    columns: NotRequired[LineStatistics | None]


class GroupStatistics(Statistics):
    """Statistics of a group of tensors. The first group is `all`."""

    group: str
    tensors: int


class RankedLine(TypedDict):
    """A row, column or kernel of a matrix."""

    index: list[int]
    norm: float | str
    abs_max: float | str
    not_finite: int


class RankReport(TypedDict):
    """The report of `rank`. Columns have no `zero` and `copied`."""

    statelens: int
    key: str
    dtype: str
    shape: list[int]
    of: str
    count: int
    median_norm: float | str
    zero: NotRequired[int]
    copied: NotRequired[int]
    largest: list[RankedLine]
    smallest: list[RankedLine]


class UnreadTensor(TypedDict):
    """A tensor without statistics, and the reason."""

    key: str
    why: str


class StatsReport(TypedDict):
    """The report of `stats`."""

    statelens: int
    tensors: list[TensorStatistics]
    groups: list[GroupStatistics]
    findings: list[Finding]
    without: list[UnreadTensor]
    failed: list[UnreadTensor]
    failed_on: NotRequired[list[str]]
    not_finite: NotRequired[list[NotFinite]]
    not_checked: NotRequired[list[UnreadTensor]]


class SingularReport(TypedDict):
    """The report of `singular`. With `dry_run`, only `key`, `dtype`, `shape` and `plan`."""

    statelens: int
    key: str
    dtype: str
    shape: list[int]
    plan: dict[str, Any]
    values: NotRequired[list[float]]
    errors: NotRequired[list[float]]
    whole: NotRequired[bool]
    passes: NotRequired[int]
    rank: NotRequired[int]
    rank_or_more: NotRequired[bool]
    condition: NotRequired[Any]
    condition_or_more: NotRequired[bool]
    stable_rank: NotRequired[float]
    effective_rank: NotRequired[float | None]
    frobenius: NotRequired[float]
    captured: NotRequired[float]


class TensorDiff(TypedDict):
    """A tensor in the report of `tensor_diff`."""

    key: str
    left_type: str
    right_type: str
    differing: int
    nan_on_both_sides: int
    nan_left_only: int
    nan_right_only: int
    left: dict[str, Any]
    right: dict[str, Any]
    difference: dict[str, Any]
    distributions: dict[str, Any]
    map: NotRequired[dict[str, Any]]


class TensorDiffReport(TypedDict):
    """The report of `tensor_diff`."""

    statelens: int
    tensors: list[TensorDiff]
    matches: bool


class LeafInfo(TypedDict):
    """A leaf, as `ls` lists it."""

    key: str
    kind: str
    dtype: NotRequired[str]
    shape: NotRequired[list[int]]
    elements: NotRequired[int]
    bytes: NotRequired[int]
    type: NotRequired[str]
    value: NotRequired[Any]
    text: NotRequired[str]
    fill: NotRequired[Any]
    missing: NotRequired[str]
    alias_of: NotRequired[str]
    fields: NotRequired[list[dict[str, Any]]]


class Manifest(TypedDict):
    """The hash or value of each leaf."""

    statelens: int
    format: dict[str, str]
    classes: NotRequired[bool]
    entries: list[dict[str, Any]]


class CastCounts(TypedDict):
    """What casting did to numbers."""

    elements: int
    changed: int
    overflowed: int
    nonzero: int
    flushed: int
    largest_relative_error: float | str | None


class CastReport(CastCounts):
    """What casting did to numbers, in all, by dtypes and by key."""

    pairs: list[dict[str, Any]]
    keys: list[dict[str, Any]]


class Loss(TypedDict):
    """Something that the output does not hold."""

    keys: list[str]
    what: str
    why: str
    harmless: bool


class ConvertReport(TypedDict):
    """The report of `convert` and `save`. Only a plan has `exact`, `segments` and `keys`."""

    statelens: int
    output: str
    format: str
    dry_run: bool
    bytes: int
    files: list[str]
    removed: NotRequired[list[str]]
    losses: list[Loss]
    cast: NotRequired[CastReport]
    exact: NotRequired[bool]
    segments: NotRequired[dict[str, dict[str, int]]]
    keys: NotRequired[list[dict[str, str | None]]]


class CommitReport(TypedDict):
    """The report of `job.commit` for a conversion."""

    statelens: int
    committed_before: bool
    files: list[str]
    removed: NotRequired[list[str]]
    bytes: NotRequired[int]
    cast: NotRequired[CastReport]
