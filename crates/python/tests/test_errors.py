"""Tests of exceptions: their classes, their attributes, and their words."""

import errno
import io
import os
import pickle

import numpy as np
import pystatelens
import pytest
import torch


def test_exceptions_of_the_system_have_a_number_and_a_name(examples):
    def caught(kind, call):
        with pytest.raises(kind) as error:
            call()
        return error.value

    (examples / "taken.pt").write_bytes(b"x")
    missing = caught(FileNotFoundError, lambda: pystatelens.open("missing.pt"))
    taken = caught(FileExistsError, lambda: pystatelens.convert("trainer.pt", "taken.pt"))
    folder = caught(OSError, lambda: pystatelens.convert("trainer.pt", "taken.pt/x.npz"))
    for error in (missing, pickle.loads(pickle.dumps(missing))):
        assert (error.errno, error.filename) == (errno.ENOENT, "missing.pt")
        assert error.strerror == "the file does not exist" and str(error).startswith("missing.pt: ")
    for error in (taken, pickle.loads(pickle.dumps(taken))):
        assert (error.errno, error.filename, error.code) == (errno.EEXIST, "taken.pt", "exists")
    assert folder.errno in (errno.ENOTDIR, errno.EIO) and folder.filename

    class Failing:
        def seek(self, *_):
            return 0

        def tell(self):
            return 1 << 20

        def read(self, size):
            raise OSError(errno.EACCES, "no", "x")

    assert caught(pystatelens.IoError, lambda: pystatelens.open(Failing())).errno == errno.EACCES


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pystatelens.open("model.safetensors", max_fetch=-1), "max_fetch is -1. Expected 0 to"),
        (lambda: pystatelens.open("model.safetensors", max_fetch="much"), "`much` is not a size"),
        (lambda: pystatelens.stats("model.safetensors", bins=-1), "bins is -1. Expected 1 to 65,535"),
        (lambda: pystatelens.stats("model.safetensors", bins=1 << 40), "Expected 1 to 65,535"),
        (lambda: pystatelens.convert("model.safetensors", "x.pt", shard_size=-2), "shard_size is -2"),
        (lambda: pystatelens.job.run("job", -1), "index is -1"),
        (lambda: pystatelens.job.plan("model.safetensors", "x.pt", "job", tasks=0), "tasks is 0"),
        (lambda: pystatelens.diff("model.safetensors", "trainer.pt", rtol=-1), "rtol is -1.0"),
        (lambda: pystatelens.diff("model.safetensors", "trainer.pt", atol=float("nan")), "atol is nan"),
        (lambda: pystatelens.diff("model.safetensors", "trainer.pt", rtol=float("inf")), "rtol is inf"),
    ],
)
def test_numbers_out_of_range_are_refused(examples, call, words):
    with pytest.raises(pystatelens.RefusedError, match=words.replace(".", r"\.")):
        call()


def test_arguments_of_other_types_are_type_errors(examples):
    for source in (3, None, object(), [3]):
        with pytest.raises(TypeError, match="expected a path, an address"):
            pystatelens.open(source)
    for make in (pystatelens.Tensor, pystatelens.Checkpoint):
        with pytest.raises(TypeError, match="open"):
            make(3)


def test_one_string_is_one_item(examples):
    np.savez("a.npz", w=np.ones(2))
    np.savez("b.npz", w=np.ones(2))
    assert list(pystatelens.open("a.npz", with_files="b.npz")) == ["w"]
    assert list(pystatelens.open("a.npz", with_files=[os.path.abspath("b.npz")])) == ["w"]

    pickled = b"\x80\x02cthe_package\nThing\nq\x00."
    found = pystatelens.scan(pickled)
    assert found["findings"]
    assert pystatelens.scan(pickled, allow="the_package.Thing") == pystatelens.scan(
        pickled, allow=["the_package.Thing"]
    )
    assert pystatelens.scan(pickled, allow="the_package.Thing") != found
    pystatelens.job.plan_many("scan", "a.npz", "scans", allow="the_package.Thing")
    assert pystatelens.stats("model.safetensors", "norm")["tensors"][0]["key"] == "norm"


def test_bytes_are_content_and_not_a_path(examples):
    with pytest.raises(pystatelens.StatelensError, match="A path is a `str` or a `Path`"):
        pystatelens.open(os.fsencode("model.safetensors"))
    data = (examples / "model.safetensors").read_bytes()
    for source in (data, bytearray(data), memoryview(data)):
        assert len(pystatelens.open(source)) == 2
        assert pystatelens.check("model.safetensors", source)["loads"]


def test_advice_names_parameters_of_python(examples):
    np.save("x.npy", np.ones(3))
    for call in (
        lambda: pystatelens.convert("trainer.pt", "x.npy"),
        lambda: pystatelens.convert("trainer.pt", "x.pt", version="9"),
        lambda: pystatelens.convert("trainer.pt", "x.unknown"),
        lambda: pystatelens.convert("trainer.pt", "x.safetensors", states="nothing"),
        lambda: pystatelens.convert("trainer.pt", "x.pt", compression="lz4"),
    ):
        with pytest.raises(pystatelens.StatelensError) as caught:
            call()
        words = str(caught.value) + str(caught.value.advice)
        assert "--" not in words and "statelens " not in words, words


def test_advice_on_casts_is_possible():
    np.savez("d.npz", s=np.array(["ab"]), r=np.zeros(2, [("a", "i4")]), f=np.ones(2, "u2"))
    checkpoint = pystatelens.open("d.npz")
    for key in ("s", "r"):
        with pytest.raises(pystatelens.UnsupportedError, match=r"`tensor\.numpy\(\)`") as caught:
            checkpoint[key].torch()
        assert "cast" not in str(caught.value)


def test_errors_of_save_name_the_key():
    bad = {
        "an object": object(),
        "a meta tensor": torch.empty(2, device="meta"),
        "a mask": np.ma.array([1, 2], mask=[0, 1]),
        "objects": np.array([1, None], dtype=object),
    }
    for value in bad.values():
        with pytest.raises(pystatelens.UnsupportedError, match=r"`model\.layers\.1`: "):
            pystatelens.save({"model": {"layers": [1, value]}}, "x.npz")


def test_errors_of_state_dict_name_the_key():
    torch.save({"a": {"m": torch.empty(2, device="meta")}}, "meta.pt")
    with pytest.raises(pystatelens.StatelensError, match=r"`a\.m`"):
        pystatelens.open("meta.pt").state_dict()



@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_file_objects_return_any_buffer(kind):
    class Buffers(io.BytesIO):
        def read(self, size=-1):
            return kind(super().read(size))

    checkpoint = pystatelens.open(Buffers(open("model.safetensors", "rb").read()))
    assert checkpoint["norm"].numpy().sum() == 6


def test_classes_without_a_source_are_type_errors():
    with pytest.raises(TypeError, match="pystatelens.open"):
        pystatelens.Tensor(3)
    with pytest.raises(TypeError, match="pystatelens.open"):
        pystatelens.Checkpoint(3)


def test_other_exceptions_are_those_of_python():
    """docs/python.md: a closed checkpoint or file object, and what a file object raises itself."""
    closed = open("model.safetensors", "rb")
    closed.close()
    with pytest.raises(ValueError):
        pystatelens.open(closed)

    class NoSeek(io.RawIOBase):
        def readable(self):
            return True

    with pytest.raises((io.UnsupportedOperation, pystatelens.StatelensError)):
        pystatelens.open(NoSeek())


def test_functions_name_their_exceptions():
    """The docstring of each function that may refuse its arguments says what it raises, or names one that does."""
    for name in ("open", "convert", "convert_model", "diff", "info", "verify", "scan", "stats", "rank", "singular", "picture"):
        text = " ".join(getattr(pystatelens, name).__doc__.split())
        assert "Raises" in text, name
