"""Opens, explains, compares and converts model checkpoints, without running code from them.

>>> import pystatelens
>>> checkpoint = pystatelens.open("model.safetensors")
>>> checkpoint["layers.0.weight"][0, :3].numpy()
array([0., 1., 2.], dtype=float32)
"""

from . import job, reports
from ._checkpoint import Checkpoint, Format, Subtree, open
from ._convert import convert, convert_model
from ._makers import Opaque, SparseTensor
from ._matrices import picture, rank, singular, tensor_diff
from ._native import __version__
from ._reports import (
    check,
    diff,
    info,
    ls,
    manifest,
    renames,
    scan,
    stats,
    summary,
    verify,
)
from ._savers import save
from ._tensor import Tensor
from ._tools import (
    convert_config,
    convert_dataloader_state,
    fix_checkpoint_spec,
    fold_lora,
    formats,
    latest,
    list_converters,
    merge,
    prune,
    runs,
    upgrade,
)
from ._view import View, view
from .errors import (
    CancelledError,
    DamagedError,
    ExistsError,
    IoError,
    LimitError,
    NoSuchKeyError,
    NotFoundError,
    RefusedError,
    SliceError,
    StatelensError,
    StatelensWarning,
    UnsupportedError,
)

__all__ = [
    "CancelledError",
    "Checkpoint",
    "DamagedError",
    "ExistsError",
    "Format",
    "IoError",
    "LimitError",
    "NoSuchKeyError",
    "NotFoundError",
    "Opaque",
    "RefusedError",
    "SliceError",
    "SparseTensor",
    "StatelensError",
    "StatelensWarning",
    "Subtree",
    "Tensor",
    "UnsupportedError",
    "View",
    "__version__",
    "check",
    "convert",
    "convert_config",
    "convert_dataloader_state",
    "convert_model",
    "diff",
    "fix_checkpoint_spec",
    "fold_lora",
    "formats",
    "info",
    "job",
    "latest",
    "list_converters",
    "ls",
    "manifest",
    "merge",
    "open",
    "picture",
    "prune",
    "rank",
    "renames",
    "reports",
    "runs",
    "save",
    "scan",
    "singular",
    "stats",
    "summary",
    "tensor_diff",
    "upgrade",
    "verify",
    "view",
]
