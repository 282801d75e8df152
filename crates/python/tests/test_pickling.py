"""Tests of pickling: checkpoints and tensors are opened again, by path or address."""

import multiprocessing
import pickle
import weakref

import numpy as np
import pystatelens
import pytest
import torch


def total(tensor):
    return float(tensor.numpy().sum())


def test_checkpoints_and_tensors_are_opened_again(examples, monkeypatch):
    checkpoint = pystatelens.open("trainer.pt")
    weight = checkpoint["model.layers.0.weight"]
    lazy = checkpoint.state_dict("model", framework="lazy")["layers"]["0"]["weight"]
    derived = weight[1:3, ..., ::2].cast("float16")[0]
    (examples / "elsewhere").mkdir()
    monkeypatch.chdir(examples / "elsewhere")
    again = pickle.loads(pickle.dumps(checkpoint))
    assert dict.fromkeys(again) == dict.fromkeys(checkpoint) and again["epoch"] == 3
    for tensor in (weight, lazy, derived, checkpoint["model.norm"]):
        copy = pickle.loads(pickle.dumps(tensor))
        assert repr(copy) == repr(tensor) and np.array_equal(copy.numpy(), tensor.numpy())


def test_other_processes_read_tensors(examples):
    checkpoint = pystatelens.open("model.safetensors")
    tensors = [checkpoint["layers.0.weight"][row] for row in range(4)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(total, tensors) == [total(tensor) for tensor in tensors]


def test_tensors_with_equal_keys_are_pickled_as_themselves():
    torch.save({"w.x": torch.zeros(2), "w": {"x": torch.ones(3)}}, "w.pt")
    state = pystatelens.open("w.pt").state_dict(framework="lazy")
    for tensor in (state["w.x"], state["w"]["x"]):
        assert pickle.loads(pickle.dumps(tensor)).numpy().tolist() == tensor.numpy().tolist()


def test_what_was_not_opened_by_a_path_is_not_pickled(examples):
    checkpoint = pystatelens.open((examples / "model.safetensors").read_bytes())
    for value in (checkpoint, checkpoint["norm"]):
        with pytest.raises(TypeError, match="opened by a path or an address"):
            pickle.dumps(value)
    closed = pystatelens.open("model.safetensors")
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(closed)


def test_weak_references(examples):
    checkpoint = pystatelens.open("model.safetensors")
    tensor = checkpoint["norm"]
    references = [weakref.ref(checkpoint), weakref.ref(tensor)]
    assert references[0]() is checkpoint and references[1]() is tensor
    del checkpoint, tensor
    assert [reference() for reference in references] == [None, None]
