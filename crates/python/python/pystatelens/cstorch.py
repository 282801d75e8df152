"""Replaces `load` and `save` of `cerebras.pytorch` for checkpoints (`.mdl`), without its dependencies.

    import pystatelens.cstorch as cstorch

    state_dict = cstorch.load("checkpoint_1000.mdl")
    cstorch.save(state_dict, "copy.mdl")

As in `cerebras.pytorch`, `load` also reads files of PyTorch and safetensors, an object that occurs
several times is one object after loading, and `save` refuses to replace a file. There are two
differences: `load` reads tensors at once, and pickled objects of classes that are not in Python or
NumPy become `pystatelens.Opaque`, because no code from a file is run.
"""

from __future__ import annotations

import os
from typing import Any

from ._checkpoint import File, open
from ._savers import save as _save

__all__ = ["load", "save"]


def load(checkpoint_file: str | os.PathLike[str] | File, map_location: Any = None) -> Any:
    """Returns the state dict of a checkpoint, with torch tensors on the device `map_location`.

    >>> import torch
    >>> save({"weight": torch.ones(2), "step": 3}, "checkpoint_3.mdl")
    >>> load("checkpoint_3.mdl")
    {'weight': tensor([1., 1.]), 'step': 3}
    """
    state_dict = open(checkpoint_file).state_dict()
    return state_dict if map_location is None else _moved(state_dict, map_location, {})


def save(obj: Any, checkpoint_file: str | os.PathLike[str]) -> None:
    """Writes a state dict as a Cerebras checkpoint. Raises `ExistsError`, a `FileExistsError`, if the file
    exists."""
    _save(obj, checkpoint_file, to="cerebras", lossy=False)


def _moved(value: Any, device: Any, moved: dict[int, Any]) -> Any:
    """Moves the tensors in dicts, lists and tuples to a device, each tensor once."""
    import torch

    if id(value) in moved:
        return moved[id(value)]
    if isinstance(value, torch.Tensor):
        moved[id(value)] = value.to(device)
    elif isinstance(value, dict):
        moved[id(value)] = value
        for key, item in value.items():
            value[key] = _moved(item, device, moved)
    elif isinstance(value, list):
        moved[id(value)] = value
        value[:] = [_moved(item, device, moved) for item in value]
    elif isinstance(value, tuple):
        return tuple(_moved(item, device, moved) for item in value)
    return moved.get(id(value), value)
