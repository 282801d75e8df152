"""Tests of keys: flat keys that occur twice, lone surrogates, deep tuples, containers."""

import pickle

import numpy as np
import pystatelens
import pytest
import torch


def test_every_leaf_has_a_key_of_its_own(tmp_path):
    state = {"a.b": 1, "a": {"b": 2}, "a.b (2)": 3, "c": {0: 4, "0": 5}, "x.y.z": 6, "x": {"y.z": 7, "y": {"z": 8}}}
    (tmp_path / "k.pkl").write_bytes(pickle.dumps(state))
    checkpoint = pystatelens.open("k.pkl")
    assert sorted(checkpoint.values()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(checkpoint) == len(dict(checkpoint)) == len(set(checkpoint)) == 8
    items = dict(checkpoint.items())
    assert all(checkpoint[key] == value and key in checkpoint for key, value in items.items())
    assert checkpoint["a.b"] == 1 and checkpoint["a.b (2)"] == 3 and items["a.b (3)"] == 2
    assert {items["x.y.z"], items["x.y.z (2)"], items["x.y.z (3)"]} == {6, 7, 8}
    assert checkpoint.state_dict() == state


def test_tensors_with_equal_keys_are_kept_apart():
    torch.save({"w.x": torch.zeros(2), "w": {"x": torch.ones(3)}}, "w.pt")
    tensors = dict(pystatelens.open("w.pt").tensors())
    assert [tensor.numpy().tolist() for tensor in tensors.values()] == [[0, 0], [1, 1, 1]]
    assert [tensor.key for tensor in tensors.values()] == [*tensors]


def test_lone_surrogates_in_keys(tmp_path, fixtures):
    (tmp_path / "s.pkl").write_bytes(pickle.dumps({"lone\ud800": 1, "plain": {"\udfff": 2}}))
    checkpoint = pystatelens.open("s.pkl")
    assert dict(checkpoint) == {"lone\ud800": 1, "plain.\udfff": 2}
    assert "lone\ud800" in checkpoint and "lone\ufffd" not in checkpoint
    with pytest.raises(pystatelens.NoSuchKeyError):
        checkpoint["lone\ud801"]
    checkpoint = pystatelens.open(fixtures / "torch/zip_unicode_keys.pt")
    assert "lone\ud800" in checkpoint and len(dict(checkpoint)) == len(checkpoint)


def test_len_is_known_without_the_keys(tmp_path):
    (tmp_path / "n.pkl").write_bytes(pickle.dumps({"a": [1, {"b": 2}, [], {}], "c": None}))
    checkpoint = pystatelens.open("n.pkl")
    assert len(checkpoint) == len(list(checkpoint)) == 5 and bool(checkpoint)
    assert repr(checkpoint).endswith("5 keys>")


@pytest.mark.parametrize("depth", [101, 30_000])
def test_deep_keys_hit_a_limit(depth):
    key = ()
    for _ in range(depth):
        key = (key,)
    with pytest.raises(pystatelens.LimitError, match="a key has tuples in more than 100 tuples"):
        pystatelens.save({key: 1}, "d.pt")


def test_keys_keep_their_types(tmp_path):
    key = ((1, ("a", None), ()), True, 2.5, b"x")
    state = {(1, "a"): 1, (): 2, 7: 3, None: 4, True: 5, 2.5: 6, b"b": 7}
    pystatelens.save(state, "keys.pt", lossy=True)
    assert pystatelens.open("keys.pt").state_dict() == state
    with pytest.raises(pystatelens.RefusedError):
        pystatelens.save({key: 1}, "keys.pt", replace=True)


def test_deep_values_hit_a_limit_in_any_thread():
    import threading

    def save():
        try:
            pystatelens.save(deep, "x.pt")
        except pystatelens.StatelensError as error:
            caught.append(error)

    deep, caught = [], []
    for _ in range(1_500):
        deep = [deep, {"a": (1,)}]
    old = threading.stack_size(128 << 10)
    try:
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    assert isinstance(caught[0], pystatelens.LimitError)


def test_a_container_is_not_a_key(examples):
    checkpoint = pystatelens.open("trainer.pt")
    with pytest.raises(pystatelens.NoSuchKeyError, match=r'keys below it. `state_dict\("model"\)`'):
        checkpoint["model"]
    with pytest.raises(pystatelens.NoSuchKeyError) as caught:
        pystatelens.open("trainer.pt")["model.nrom"]
    assert str(caught.value).count("model.norm") == 1


def test_views_of_arrays_and_shared_lists_stay_one_object():
    shared = [1, 2]
    state = {"a": shared, "b": {"c": shared}, "d": np.arange(3)}
    pystatelens.save(state, "shared.pt", lossy=True)
    loaded = pystatelens.open("shared.pt").state_dict()
    assert loaded["a"] is loaded["b"]["c"] and loaded["a"] == [1, 2]
