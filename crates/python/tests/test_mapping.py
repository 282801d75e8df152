"""Tests of views of a subtree, and of what is left out of a state dict."""

import numpy as np
import pystatelens
import pytest
import torch


def test_a_subtree_is_a_mapping(examples):
    checkpoint = pystatelens.open("trainer.pt")
    model = checkpoint.below("model")
    assert list(model) == ["layers.0.weight", "norm"] and len(model) == 2 and "norm" in model
    assert model["norm"].key == "model.norm" and model.get("epoch") is None
    assert [key for key, _ in model.tensors("*.weight")] == ["layers.0.weight"]
    assert list(checkpoint.below("model.layers")) == ["0.weight"]
    assert list(checkpoint.below("")) == list(checkpoint)
    assert model.state_dict(framework="numpy")["norm"].tolist() == [1] * 6
    for key in ("nrom", "layers"):
        with pytest.raises(KeyError):
            model[key]
    with pytest.raises(pystatelens.NoSuchKeyError):
        checkpoint.below("modl")


def test_tensors_are_selected_by_patterns(examples):
    checkpoint = pystatelens.open("trainer.pt")
    assert [key for key, _ in checkpoint.tensors("*norm")] == ["model.norm"]
    assert [key for key, _ in checkpoint.tensors(["*norm", "/weight$/"])] == list(checkpoint)[:2]
    assert list(checkpoint.tensors("nothing")) == []
    with pytest.raises(pystatelens.RefusedError):
        list(checkpoint.tensors("/(/"))


def test_what_can_not_be_read_is_left_out_on_request():
    state = {"a": {"meta": torch.empty(2, device="meta"), "w": torch.ones(2)}, "list": [torch.empty(1, device="meta"), 1]}
    torch.save(state, "meta.pt")
    checkpoint = pystatelens.open("meta.pt")
    for framework in ("torch", "numpy"):
        read = checkpoint.state_dict(framework=framework, skip=True)
        assert list(read["a"]) == ["w"] and read["a"]["w"].tolist() == [1, 1] and read["list"] == [1]
        with pytest.raises(pystatelens.StatelensError):
            checkpoint.state_dict(framework=framework)


def test_values_are_read_as_other_dtypes_and_into_arrays():
    torch.save({"w": torch.arange(6.0).reshape(2, 3)}, "w.pt")
    tensor = pystatelens.open("w.pt")["w"]
    assert tensor.numpy("float16").dtype == np.float16 and tensor.numpy(np.int32).tolist() == [[0, 1, 2], [3, 4, 5]]
    read = tensor.torch(device="meta", dtype=torch.bfloat16)
    assert read.device.type == "meta" and read.dtype == torch.bfloat16
    for dtype in ("float32", "float64", "int8"):
        array = np.empty((2, 3), dtype)
        tensor.read_into(array)
        assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    column = np.zeros((3, 4))[:, 1]
    tensor[1].read_into(column)
    assert column.tolist() == [3, 4, 5]
    with pytest.raises(ValueError, match="does not fit"):
        tensor.read_into(np.empty((3, 2)))
