"""Tests of `open`: paths, addresses, file objects, and the number of bytes read."""

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest
import pystatelens


class Counting(io.FileIO):
    """A file object that counts the bytes read."""

    count = 0

    def read(self, size=-1):
        data = super().read(size)
        Counting.count += len(data)
        return data


class Short(io.FileIO):
    """A file object that returns at most seven bytes per call, which its protocol allows."""

    def read(self, size=-1):
        return super().read(min(size, 7))


@pytest.mark.parametrize("source", [str, Path, os.fsencode, lambda path: open(path, "rb"), Short])
def test_all_sources_give_the_same_checkpoint(source, examples):
    if source is os.fsencode:
        with pytest.raises(pystatelens.StatelensError):
            pystatelens.open(os.fsencode("model.safetensors"))  # bytes are content, not a name
        return
    checkpoint = pystatelens.open(source(examples / "model.safetensors"))
    assert list(checkpoint) == ["layers.0.weight", "norm"]
    assert checkpoint["layers.0.weight"].numpy().tolist() == np.arange(24).reshape(4, 6).tolist()


def test_bytes_and_fsspec(examples):
    data = (examples / "model.safetensors").read_bytes()
    fsspec.filesystem("memory").pipe("/model.safetensors", data)
    for source in [
        data,
        io.BytesIO(data),
        "memory://model.safetensors",
        fsspec.open("memory://model.safetensors", "rb"),
        fsspec.filesystem("memory").open("/model.safetensors"),
    ]:
        assert pystatelens.open(source)["norm"].numpy().sum() == 6


def test_addresses_are_read_in_ranges(server, examples):
    rows = np.arange(4_000_000, dtype="float32").reshape(4_000, 1_000)
    pystatelens.save({"a": rows, "b": rows}, "big.safetensors")
    server.sent = 0
    checkpoint = pystatelens.open(f"{server.url}/big.safetensors")
    assert np.array_equal(checkpoint["b"][2_000:2_002, ::3].numpy(), rows[2_000:2_002, ::3])
    assert 0 < server.sent < 4_000_000 < os.path.getsize("big.safetensors")
    assert pystatelens.verify(f"{server.url}/model.safetensors")["sound"]
    with pytest.raises(pystatelens.StatelensError):
        pystatelens.open(f"{server.url}/missing.safetensors")
    with pytest.raises(pystatelens.LimitError):
        pystatelens.open(f"{server.url}/big.safetensors", max_fetch=1_000)["a"].numpy()


def test_slices_read_only_what_they_need(tmp_path):
    rows, width = 4_000, 1_000
    np.save("big.npy", np.arange(rows * width, dtype="float32").reshape(rows, width))
    file = Counting("big.npy")
    Counting.count = 0
    tensor = pystatelens.open(file)[""]
    opened = Counting.count
    assert opened < 200_000
    part = tensor[7:9, ..., ::2]
    assert part.shape == (2, 500) and Counting.count == opened
    wanted = np.arange(rows * width, dtype="float32").reshape(rows, width)[7:9, ..., ::2]
    assert np.array_equal(part.numpy(), wanted)
    # The file has 16 MB. The reader may fetch the whole cache block of the two rows.
    assert 2 * 500 * 4 <= Counting.count - opened <= 64 << 10
    before = Counting.count
    assert tensor[100:200].numpy().shape == (100, width)
    assert Counting.count - before == 100 * width * 4


def test_one_file_object_serves_many_threads(tmp_path):
    np.savez("many.npz", **{f"w{i}": np.full(50_000, i) for i in range(40)})
    checkpoint = pystatelens.open(open("many.npz", "rb"))
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda key: checkpoint[key].numpy(), checkpoint))
    assert [int(array.min()) for array in read] == [int(array.max()) for array in read] == list(range(40))


def test_errors_of_a_file_object_are_the_cause(examples):
    class Failing(io.FileIO):
        def read(self, size=-1):
            raise RuntimeError("the disk is gone")

    with pytest.raises(pystatelens.IoError) as caught:
        pystatelens.open(Failing("model.safetensors"))
    assert isinstance(caught.value.__cause__, RuntimeError)

    class Interrupted(io.FileIO):
        def read(self, size=-1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pystatelens.open(Interrupted("model.safetensors"))


def test_files_opened_as_text_are_refused(examples):
    with open("model.safetensors", encoding="latin-1") as file, pytest.raises(TypeError, match='with "rb"'):
        pystatelens.open(file)


def test_a_with_statement_closes_the_files(examples):
    def descriptors():
        return sum(os.path.realpath(f"/proc/self/fd/{one}") == path for one in os.listdir("/proc/self/fd"))

    path = os.path.realpath("model.safetensors")
    with pystatelens.open(path) as checkpoint:
        tensor = checkpoint["norm"]
        assert sorted(checkpoint) == ["layers.0.weight", "norm"]
    assert repr(checkpoint) == "<Checkpoint: closed>"
    for use in (len, list, lambda it: it["norm"], lambda it: it.format, pystatelens.verify):
        with pytest.raises(ValueError, match="the checkpoint is closed"):
            use(checkpoint)
    assert tensor.numpy().tolist() == [1] * 6
    if sys.platform == "linux":
        assert descriptors() == 1
        del tensor
        assert descriptors() == 0
    checkpoint.close()


def test_keys_are_a_mapping(examples):
    checkpoint = pystatelens.open("trainer.pt")
    assert len(checkpoint) == 3 and "epoch" in checkpoint and "model" not in checkpoint
    assert checkpoint.get("nothing") is None and 3 not in checkpoint
    assert dict(checkpoint.items())["epoch"] == 3
    with pytest.raises(pystatelens.NoSuchKeyError, match="Did you mean `model.norm`"):
        checkpoint["model.nrm"]
    with pytest.raises(KeyError):
        checkpoint["model"]
    assert [key for key, _ in checkpoint.tensors()] == ["model.layers.0.weight", "model.norm"]
    assert set(checkpoint.state_dict("model.layers")) == {"0"}
