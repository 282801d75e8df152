"""Tests of tensors: indices as in NumPy, and conversions to arrays of other libraries."""

import itertools
import os

import ml_dtypes
import numpy as np
import pytest
import pystatelens
import torch

INDICES = [
    slice(None),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(-2, None),
    slice(5, 2, -2),
    slice(3, 3),
    slice(-(1 << 70), 1 << 70, 1 << 62),
    slice(1 << 70, None, -2),
    0,
    -1,
    np.int64(1),
]


def test_indices_work_as_in_numpy(tmp_path):
    array = np.arange(4 * 5 * 6, dtype="int16").reshape(4, 5, 6)
    np.save("x.npy", array)
    tensor = pystatelens.open("x.npy")[""]
    for count in (1, 2, 3):
        for index in itertools.product(INDICES, repeat=count):
            assert np.array_equal(tensor[index].numpy(), array[index])
    for index in [..., (..., 0), (1, ..., slice(2)), (), (slice(2), ..., 3)]:
        assert np.array_equal(tensor[index].numpy(), array[index])
        assert tensor[index].shape == array[index].shape
    assert np.array_equal(tensor[1:3][0][::2].numpy(), array[1:3][0][::2])


@pytest.mark.parametrize("index", [4, -5, 1 << 70, -(1 << 70), (0, 0, 0, 0), (..., ...), (0, slice(None, None, 0))])
def test_wrong_indices_are_index_errors(index):
    np.save("x.npy", np.zeros((4, 5, 6)))
    tensor = pystatelens.open("x.npy")[""]
    with pytest.raises(IndexError) as caught:
        tensor[index]
    assert isinstance(caught.value, pystatelens.SliceError)


@pytest.mark.parametrize(
    "index",
    [None, True, 1.5, "x", [0, 1], np.array([0, 1]), np.zeros(4, "bool"), np.True_, slice(1.5, None)]
    + [torch.tensor([0, 1]), (0, [True, False, True, False, True])],
)
def test_other_indices_are_type_errors_with_advice(index):
    np.save("x.npy", np.zeros((4, 5, 6)))
    with pytest.raises(TypeError, match="read it first: `tensor.numpy"):
        pystatelens.open("x.npy")[""][index]


def test_slices_of_the_first_dimension_are_iterated_over():
    array = np.arange(6.0).reshape(2, 3)
    np.save("x.npy", array)
    tensor = pystatelens.open("x.npy")[""]
    assert [row.numpy().tolist() for row in tensor] == array.tolist()
    with pytest.raises(TypeError, match="without dimensions"):
        list(tensor[0, 0])
    # `in` would compare tensors instead of elements.
    with pytest.raises(TypeError):
        3.0 in tensor


def test_single_elements_are_numbers():
    state = {"scale": torch.tensor(0.5, dtype=torch.bfloat16), "step": torch.tensor([7]), "off": torch.tensor(False)}
    torch.save(state, "x.pt")
    checkpoint = pystatelens.open("x.pt")
    assert checkpoint["scale"].item() == float(checkpoint["scale"]) == 0.5
    assert type(checkpoint["scale"].item()) is float and type(checkpoint["step"].item()) is int
    assert int(checkpoint["step"]) == 7 and not checkpoint["off"]
    np.save("x.npy", np.zeros(2))
    for read in (pystatelens.Tensor.item, float, int, bool):
        with pytest.raises(ValueError, match="2 elements, not one"):
            read(pystatelens.open("x.npy")[""])


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_numpy_lacks(name):
    numbers = torch.tensor([0.0, 1.5, -2.0, 448.0]).to(getattr(torch, name))
    torch.save({"x": numbers}, "x.pt")
    tensor = pystatelens.open("x.pt")["x"]
    array = tensor.numpy()
    assert array.dtype == getattr(ml_dtypes, name)
    assert array.astype("float32").tolist() == numbers.float().tolist()
    assert tensor.torch().dtype == numbers.dtype
    assert torch.equal(tensor.torch().float(), numbers.float())


def test_arrays_are_writable_and_not_copied():
    np.save("x.npy", np.arange(1000.0))
    tensor = pystatelens.open("x.npy")[""]
    array = tensor.numpy()
    # The array is a view of the memory that received the bytes of the file.
    assert isinstance(array.base, bytearray) and array.flags.writeable
    array[0] = 7
    assert tensor.numpy()[0] == 0


def base(array):
    """Returns the object that owns the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array if array.base is None else array.base


def test_large_tensors_are_read_into_uninitialised_memory():
    numbers = np.random.default_rng(1).random((3, 300, 500))
    state = {"x": torch.from_numpy(numbers), "y": torch.from_numpy(numbers).to(torch.bfloat16)}
    for name, options in [("x.pt", {}), ("x.npz", {"select": "x"}), ("x.mdl", {})]:
        pystatelens.convert(pystatelens.save(state, "all.safetensors", replace=True)["files"][0], name, **options)
        tensor = pystatelens.open(name)["x"]
        for index in [..., slice(1, 3), 2, (1, slice(20, 290))]:
            array = tensor[index].numpy()
            assert np.array_equal(array, numbers[index]) and array.flags.writeable
            assert isinstance(base(array), np.ndarray)
            assert torch.equal(tensor[index].torch(), state["x"][index])
        # The bytes of these columns are not contiguous in the file.
        columns = tensor[..., :450]
        assert np.array_equal(columns.numpy(), numbers[..., :450]) and isinstance(base(columns.numpy()), bytearray)
        cast = tensor.cast("float32")
        assert np.array_equal(cast.numpy(), numbers.astype("float32")) and isinstance(base(cast.numpy()), bytearray)
    assert torch.equal(pystatelens.open("x.pt")["y"].torch(), state["y"])
    with open("all.safetensors", "rb") as file:
        assert np.array_equal(pystatelens.open(file)["x"].numpy(), numbers)


def test_a_file_that_became_shorter_is_an_error():
    np.save("x.npy", np.ones(100_000))
    tensor = pystatelens.open("x.npy")[""]
    os.truncate("x.npy", 400_000)
    for read in (tensor.numpy, tensor.torch, tensor.tobytes):
        with pytest.raises(pystatelens.IoError, match="became shorter"):
            read()


def test_other_libraries_convert_tensors():
    np.save("x.npy", np.arange(6.0).reshape(2, 3))
    tensor = pystatelens.open("x.npy")[""]
    assert np.asarray(tensor).sum() == 15
    assert np.array(tensor, dtype="int8").dtype == "int8"
    assert np.from_dlpack(tensor).shape == (2, 3)
    assert torch.from_dlpack(tensor)[1, 2] == 5
    torch.save({"x": torch.ones(3, dtype=torch.bfloat16)}, "x.pt")
    assert torch.from_dlpack(pystatelens.open("x.pt")["x"]).dtype == torch.bfloat16
    with pytest.raises(ValueError):
        np.asarray(tensor, copy=False)


@pytest.mark.parametrize("dtype", ["float16", torch.float16, np.float16, np.dtype("float16")])
def test_a_dtype_is_its_name_or_an_object(dtype):
    np.save("x.npy", np.arange(3.0))
    assert pystatelens.open("x.npy")[""].cast(dtype).numpy().dtype == np.float16
    for number, cast in enumerate([dtype, {"*": dtype}]):
        pystatelens.convert("x.npy", f"{number}.npz", cast=cast, lossy=True)
        assert next(pystatelens.open(f"{number}.npz").tensors())[1].dtype == "float16"
    assert pystatelens.open("x.npy")[""].cast(ml_dtypes.bfloat16).dtype == "bfloat16"


def test_casts_round_as_torch_does():
    numbers = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    torch.save({"x": numbers}, "x.pt")
    cast = pystatelens.open("x.pt")["x"].cast("bfloat16")
    assert cast.dtype == "bfloat16" and torch.equal(cast.torch(), numbers.bfloat16())
    with pytest.raises(pystatelens.RefusedError, match="there is no dtype"):
        cast.cast("float7")


def test_blocks_are_read_as_numbers(fixtures):
    paths = [path for path in (fixtures / "gguf").glob("*.gguf") if not path.name.startswith("x_")]
    tensors = [tensor for path in paths for _, tensor in pystatelens.open(path).tensors()]
    blocks = [tensor for tensor in tensors if tensor.dtype in ("Q8_0", "Q4_0")]
    assert blocks
    for tensor in blocks:
        with pytest.raises(pystatelens.UnsupportedError, match="cast"):
            tensor.numpy()
        assert np.isfinite(tensor.cast("float32").numpy()).all()


def test_tensors_of_one_element_compare_as_numbers():
    torch.save({"step": torch.tensor(3), "loss": torch.tensor([[2.5]]), "w": torch.ones(2)}, "c.pt")
    checkpoint = pystatelens.open("c.pt")
    step, loss, weights = checkpoint["step"], checkpoint["loss"], checkpoint["w"]
    assert step == 3 and step != 4 and 3 == step and not step == 3.5 and step < 4 and step >= np.int64(3)
    assert loss == 2.5 and loss < step
    assert step == checkpoint["step"] and step == torch.tensor(3) and step == np.array([3])
    assert (step == None) is False and (step == [3]) is False  # noqa: E711
    assert step in [1, 3] and step not in (1, 2)
    for other in (1, weights, np.ones(2), torch.ones(2)):
        with pytest.raises(TypeError, match="only tensors with one element"):
            weights == other
    with pytest.raises(TypeError):
        step < "x"
    assert len({step, loss, step}) == 2


def test_tensors_of_one_element_are_numbers():
    torch.save({"step": torch.tensor(3), "loss": torch.tensor(2.567), "w": torch.ones(2)}, "c.pt")
    checkpoint = pystatelens.open("c.pt")
    step, loss = checkpoint["step"], checkpoint["loss"]
    assert list(range(step)) == [0, 1, 2] and [4, 5, 6, 7][step] == 7
    assert complex(loss).real == pytest.approx(2.567) and round(loss, 1) == pytest.approx(2.6)
    assert round(loss) == 3 and f"{loss:.2f} {step:03d}" == "2.57 003" and f"{step}" == str(step)
    with pytest.raises(TypeError, match="is not an integer"):
        range(loss)
    for use in (range, complex, round, lambda it: f"{it:.2f}"):
        with pytest.raises(ValueError, match="2 elements, not one"):
            use(checkpoint["w"])


def test_numbers_need_no_numpy():
    import subprocess
    import sys

    state = {
        "bool": torch.tensor(True),
        "int": torch.tensor([-(2**40)]),
        "byte": torch.tensor(200, dtype=torch.uint8),
        "half": torch.tensor(1.5, dtype=torch.float16),
        "bfloat": torch.tensor(-2.5, dtype=torch.bfloat16),
        "eight": torch.tensor(0.5).to(torch.float8_e4m3fn),
        "double": torch.tensor(1e300, dtype=torch.float64),
        "complex": torch.tensor(1 + 2j),
        "scalar": np.float32(2.25),
        "integer": np.int16(-7),
    }
    torch.save(state, "numbers.pt")
    script = """
import sys
sys.modules["numpy"] = None
import pystatelens
print([value.item() if hasattr(value, "item") else value for value in pystatelens.open("numbers.pt").values()])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert eval(run.stdout) == [True, -(2**40), 200, 1.5, -2.5, 0.5, 1e300, 1 + 2j, 2.25, -7]


def test_dtypes_are_values():
    import pickle

    dtypes = ["O", "U3", "S2", "M8[s]", "f4", "V5", [("a", "i4"), ("b", "U2")], "longdouble"]
    dtypes += [">f4", ">i8", ">U3", ">M8[ns]", "<c16", [("t", "u1"), (("a title", "n"), "f8")]]
    state = {str(number): np.dtype(dtype) for number, dtype in enumerate(dtypes)}
    with open("dtypes.pkl", "wb") as file:
        pickle.dump({**state, "bf": np.dtype(ml_dtypes.bfloat16)}, file)
    for framework in ("numpy", "torch"):
        ours = pystatelens.open("dtypes.pkl").state_dict(framework=framework)
        assert {key: ours[key] for key in state} == state
        assert [ours[key].str for key in state] == [state[key].str for key in state]
        assert ours[str(len(dtypes) - 1)].fields["a title"] == state[str(len(dtypes) - 1)].fields["a title"]
        assert ours["bf"] == np.dtype(ml_dtypes.bfloat16)


def test_memory_maps_are_views_of_the_file(tmp_path):
    rows = np.arange(2_048 * 320, dtype="float32").reshape(2_048, 320)
    pystatelens.save({"w": rows, "h": rows.astype("f2"), "e": np.zeros((0, 3))}, "m.safetensors")
    checkpoint = pystatelens.open("m.safetensors")
    mapped = checkpoint["w"].numpy(mmap=True)
    assert np.array_equal(mapped, rows) and mapped.dtype == rows.dtype and not mapped.flags.owndata
    assert np.array_equal(mapped[:, 5:10], rows[:, 5:10])
    assert np.array_equal(checkpoint["h"][10:20].numpy(mmap=True), rows.astype("f2")[10:20])
    assert checkpoint["e"].numpy(mmap=True).shape == (0, 3)
    with pytest.raises(ValueError, match="read-only"):
        mapped[0, 0] = 1
    del checkpoint
    assert mapped[-1, -1] == rows[-1, -1]
    with pytest.raises(pystatelens.RefusedError, match="not one run of a file"):
        pystatelens.open("m.safetensors")["w"][:, 5:10].numpy(mmap=True)
    with pytest.raises(pystatelens.RefusedError, match="has the dtype of the file"):
        pystatelens.open("m.safetensors")["w"].numpy("float16", mmap=True)
    np.savez_compressed("packed.npz", w=rows)
    for source in ("packed.npz", open("m.safetensors", "rb").read()):
        with pytest.raises(pystatelens.RefusedError):
            pystatelens.open(source)["w"].numpy(mmap=True)
