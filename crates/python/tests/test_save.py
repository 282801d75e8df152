"""Tests of `save`, and of `load` and `save` in `pystatelens.cstorch`."""

import ml_dtypes
import numpy as np
import pystatelens
import pystatelens.cstorch
import pytest
import torch


def test_torch_reads_saved_state_dicts():
    weight = torch.arange(6.0).reshape(2, 3)
    state = {
        "model": {"a": weight.t(), "tied": weight, "again": weight, "half": weight.bfloat16()},
        "list": [1, 2.5, None, "é", b"x", (True, 2**70)],
        "array": np.arange(3, dtype=">i4"),
        "scalar": torch.tensor(3, dtype=torch.int8),
        "dtype": torch.float16,
        3: {"empty": torch.empty(0, 4)},
    }
    pystatelens.save(state, "saved.pt")
    theirs = torch.load("saved.pt", weights_only=False)
    assert torch.equal(theirs["model"]["a"], weight.t())
    assert theirs["model"]["tied"].data_ptr() == theirs["model"]["again"].data_ptr()
    assert theirs["model"]["half"].dtype == torch.bfloat16
    assert theirs["list"] == state["list"] and theirs["dtype"] == torch.float16
    assert theirs["array"].tolist() == [0, 1, 2] and theirs["scalar"].item() == 3
    assert theirs[3]["empty"].shape == (0, 4)


def test_arrays_and_tensors_of_checkpoints_are_saved(examples):
    lazy = pystatelens.open("trainer.pt")
    state = {"lazy": lazy["model.norm"], "eight": np.ones(2, ml_dtypes.float8_e5m2)}
    pystatelens.save(state, "saved.safetensors")
    from safetensors.torch import load_file

    theirs = load_file("saved.safetensors")
    assert theirs["lazy"].tolist() == [1] * 6 and theirs["eight"].dtype == torch.float8_e5m2


def test_unsupported_values_are_refused():
    with pytest.raises(pystatelens.UnsupportedError, match="can't be written"):
        pystatelens.save({"x": object()}, "x.pt")
    deep = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(pystatelens.LimitError):
        pystatelens.save(deep, "x.pt")


def test_cstorch_keeps_values_types_and_ties():
    weight = torch.ones(2, 3)
    state = {
        "model": {"wte": weight, "head": weight, "norm": torch.ones(3).bfloat16()},
        "step": 7,
        "name": "run",
        "none": None,
        "groups": [{"lr": 0.1, "params": [0, 1]}],
        0: {"1": True},
    }
    pystatelens.cstorch.save(state, "checkpoint_7.mdl")
    loaded = pystatelens.cstorch.load("checkpoint_7.mdl")
    assert loaded["model"]["wte"] is loaded["model"]["head"]
    assert torch.equal(loaded["model"]["wte"], weight)
    assert loaded["model"]["norm"].dtype == torch.bfloat16
    assert {key: loaded[key] for key in ("step", "name", "none", "groups", 0)} == {
        key: state[key] for key in ("step", "name", "none", "groups", 0)
    }
    with pytest.raises(FileExistsError):
        pystatelens.cstorch.save(state, "checkpoint_7.mdl")
    with pytest.raises(FileNotFoundError):
        pystatelens.cstorch.load("missing.mdl")
    meta = pystatelens.cstorch.load("checkpoint_7.mdl", map_location="meta")
    assert meta["model"]["wte"].device.type == "meta" and meta["model"]["wte"] is meta["model"]["head"]


def test_cstorch_loads_files_of_the_real_library(fixtures):
    for path in sorted((fixtures / "cerebras/v2.10.0").glob("*.mdl"))[:20]:
        try:
            ours = pystatelens.cstorch.load(path)
        except pystatelens.UnsupportedError:
            continue
        twin = path.with_suffix(".pt")
        if isinstance(ours, dict) and twin.exists():
            try:
                theirs = torch.load(twin, weights_only=True)
            except Exception:
                continue
            assert list(ours) == list(theirs), path.name
