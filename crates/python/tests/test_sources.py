"""Tests of sources of several files, and of the options of `open`."""

import os
import pickle

import numpy as np
import pystatelens
import pytest
import torch
from conftest import write_safetensors


def arrays(*names):
    return {name: np.full((4, 5), number, "float32") for number, name in enumerate(names)}


def test_a_list_of_shards_is_one_checkpoint(examples):
    pystatelens.save(arrays("a", "b", "c", "d"), "whole.safetensors")
    report = pystatelens.convert("whole.safetensors", "set.safetensors", shard_size=160)
    shards = [path for path in report["files"] if path.endswith(".safetensors")]
    assert len(shards) > 1
    for source in (shards, tuple(shards), [*report["files"]], shards[::-1], "set-*.safetensors"):
        checkpoint = pystatelens.open(source)
        assert sorted(checkpoint) == ["a", "b", "c", "d"]
        assert [int(checkpoint[key].numpy()[0, 0]) for key in "abcd"] == [0, 1, 2, 3]
    assert pystatelens.verify("set-*.safetensors")["sound"]
    again = pickle.loads(pickle.dumps(pystatelens.open(shards)["d"]))
    assert int(again[0, 0]) == 3


def test_shards_in_several_folders(examples):
    pystatelens.save(arrays("a", "b", "c", "d"), "whole.safetensors")
    report = pystatelens.convert("whole.safetensors", "set.safetensors", shard_size=160)
    moved = []
    for number, path in enumerate(report["files"]):
        os.mkdir(f"node{number}")
        os.rename(path, moved_path := f"node{number}/{path}")
        moved.append(moved_path)
    assert sorted(pystatelens.open("node*/set*")) == sorted(pystatelens.open(moved)) == ["a", "b", "c", "d"]


def test_checkpoints_with_different_keys_are_merged(examples):
    write_safetensors(examples / "part_x.safetensors", arrays("x", "y"))
    write_safetensors(examples / "part_z.safetensors", arrays("z"))
    merged = pystatelens.open("part_*.safetensors")
    assert sorted(merged) == ["x", "y", "z"] and int(merged["y"][0, 0]) == 1
    torch.save({"z": torch.ones(2), "w": {"v": torch.ones(1)}}, "part_w.pt")
    mixed = pystatelens.open(["part_x.safetensors", "part_w.pt"])
    assert sorted(mixed) == ["w.v", "x", "y", "z"]
    pystatelens.convert(["part_x.safetensors", "part_w.pt"], "all.npz")
    assert sorted(np.load("all.npz")) == ["w.v", "x", "y", "z"]
    with pytest.raises(pystatelens.RefusedError, match="`z` is in part_z.safetensors and in part_w.pt"):
        pystatelens.open(["part_z.safetensors", "part_w.pt"])


def test_a_pattern_without_files_is_an_error(examples):
    with pytest.raises(FileNotFoundError, match="no file matches"):
        pystatelens.open("nothing-*.pt")
    with pytest.raises(pystatelens.RefusedError, match="empty"):
        pystatelens.open([])
    with pytest.raises(TypeError, match="a list with int"):
        pystatelens.open(["model.safetensors", 3])
    # A file whose name looks like a pattern is that file.
    (examples / "a[1].safetensors").write_bytes((examples / "model.safetensors").read_bytes())
    assert len(pystatelens.open("a[1].safetensors")) == 2
    assert list(pystatelens.open("mod*.safetensors")) == list(pystatelens.open("model.safetensors"))


def test_limits_are_lifted_on_request(examples):
    deep = []
    for _ in range(20_000):
        deep = [deep, 0]
    data = pickle_of(deep)
    (examples / "deep.pkl").write_bytes(data)
    try:
        pystatelens.open("deep.pkl")
    except pystatelens.LimitError as error:
        assert "limit=10" in str(error) and "--" not in str(error)
    for limit in (-1, 1.5, "10"):
        with pytest.raises((pystatelens.RefusedError, AttributeError, TypeError)):
            pystatelens.open("model.safetensors", limit=limit)
    for limit in (0, 10, None):
        assert len(pystatelens.open("model.safetensors", limit=limit, scratch="1GB")) == 2
        assert pystatelens.scan("model.safetensors", limit=limit)["worst"] is None


def pickle_of(deep):
    """Pickles nested lists, which Python's own pickler can't do without recursion."""
    depth = 0
    while deep:
        deep, depth = deep[0], depth + 1
    return b"\x80\x02" + b"]" * (depth + 1) + b"a" * depth + b"."


def test_arrays_without_a_dtype_are_read_as_one():
    import ml_dtypes

    halves = np.arange(4).astype(ml_dtypes.bfloat16)
    np.savez("b.npz", w=halves, v=halves)
    assert pystatelens.open("b.npz")["w"].dtype == "void16"
    whole = pystatelens.open("b.npz", read_as="bfloat16")
    assert whole["w"].dtype == whole["v"].dtype == "bfloat16" and whole["w"].numpy().tolist() == [0, 1, 2, 3]
    part = pystatelens.open("b.npz", read_as={"w": ml_dtypes.bfloat16})
    assert (part["w"].dtype, part["v"].dtype) == ("bfloat16", "void16")
    again = pickle.loads(pickle.dumps(whole["w"]))
    assert again.dtype == "bfloat16"
    with pytest.raises(pystatelens.StatelensError):
        pystatelens.open("b.npz", read_as="nothing")


def test_layers_in_one_tensor_are_taken_apart(fixtures, tmp_path):
    """Megatron stores all layers in one tensor."""
    import json

    for name in ("mcore_tp2", "mcore_pp2"):
        source = fixtures / "sharded" / name
        expected = json.loads((fixtures / f"sharded/{name}.expected.json").read_text())["unstacked"]
        unstacked = pystatelens.open(source, unstack=True)
        hashes = {entry["key"]: entry["sha256"] for entry in pystatelens.manifest(unstacked)["entries"] if "sha256" in entry}
        assert all(hashes[entry["key"]] == entry["sha256"] for entry in expected)
        again = pickle.loads(pickle.dumps(unstacked))
        assert list(again) == list(unstacked)
        job = tmp_path / f"{name}.job"
        recipe = pystatelens.job.plan(source, tmp_path / f"{name}.safetensors", job, unstack=True, lossy=True)
        for index in range(recipe["tasks"]):
            pystatelens.job.run(job, index)
        pystatelens.job.commit(job)
        written = pystatelens.open(tmp_path / f"{name}.safetensors")
        assert all(entry["key"] in written for entry in expected)
