"""The values of all fixtures, compared with what the real libraries read."""

import hashlib
import json
import warnings

import numpy as np
import pystatelens
import pytest
import torch
from conftest import FIXTURES
from describe import describe

EXPECTED = sorted(FIXTURES.rglob("*.expected.json"))


def rows(value):
    """What is in a loaded value, without which views share a storage: ours are dense."""
    described = []
    for path, node in describe(value):
        node = {name: it for name, it in node.items() if name not in ("storage", "requires_grad", "class")}
        described.append((path, node))
    return described


def of_torch():
    names = ["torch", "torch_crafted", "trainer", "reports", "dcp_single"]
    for folder in names:
        for path in sorted((FIXTURES / folder).rglob("*")):
            if path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
                yield path


@pytest.mark.parametrize("path", of_torch(), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_state_dicts_are_those_of_torch(path):
    warnings.simplefilter("ignore")
    try:
        theirs = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        pytest.skip(f"torch refuses it: {type(error).__name__}")
    if path.name == "zip_meta.pt":
        with pytest.raises(pystatelens.UnsupportedError, match="no bytes"):
            pystatelens.open(path).state_dict()
        return
    assert rows(pystatelens.open(path).state_dict()) == rows(theirs)


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_tensors_have_the_expected_bytes(path):
    expected = json.loads(path.read_text())
    source = path.with_name(path.name.removesuffix(".expected.json"))
    entries = expected.get("entries") if isinstance(expected, dict) else None
    if not entries or not source.exists():
        pytest.skip("its content is in another form")
    # Two keys may have the same flat form.
    hashes = {}
    for entry in entries:
        key, about = entry if isinstance(entry, list) else (entry.get("key"), entry)
        if about.get("sha256") and about.get("kind") in ("tensor", "ndarray"):
            hashes.setdefault(key, set()).add(about["sha256"])
    if not hashes or source.name == "bigendian.gguf":
        pytest.skip("it has no hashes of little-endian values")
    checkpoint = pystatelens.open(source)
    found = {key: checkpoint[key] for key in hashes if key in checkpoint}
    tensors = {key: value for key, value in found.items() if isinstance(value, pystatelens.Tensor)}
    if not tensors:
        pytest.skip("its keys are named in another way")
    for key, tensor in tensors.items():
        assert hashlib.sha256(tensor.tobytes()).hexdigest() in hashes[key], key


@pytest.mark.parametrize("path", sorted((FIXTURES / "safetensors").glob("*.safetensors")), ids=lambda path: path.name)
def test_safetensors(path):
    from safetensors.torch import load_file

    try:
        theirs = load_file(path)
    except Exception as error:
        pytest.skip(f"safetensors refuses it: {type(error).__name__}")
    ours = pystatelens.open(path)
    assert set(theirs) <= set(ours)
    for key, tensor in theirs.items():
        assert ours[key].torch().dtype == tensor.dtype and ours[key].shape == tuple(tensor.shape)
        assert torch.equal(ours[key].torch().view(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("path", sorted((FIXTURES / "numpy").glob("*.np[yz]")), ids=lambda path: path.name)
def test_numpy(path):
    try:
        theirs = np.load(path)
        theirs = dict(theirs) if path.suffix == ".npz" else {"": theirs}
    except Exception as error:
        pytest.skip(f"numpy refuses it: {type(error).__name__}")
    ours = pystatelens.open(path)
    for key, array in theirs.items():
        if isinstance(array, bytes):
            # A member that is not an array.
            assert ours[key] == array
            continue
        found = ours[key].numpy() if isinstance(ours[key], pystatelens.Tensor) else ours[key]
        assert found.shape == array.shape, key
        assert found.dtype == array.dtype.newbyteorder("<"), key
        assert found.tobytes() == np.ascontiguousarray(array.astype(found.dtype)).tobytes(), key


def test_tied_tensors_stay_tied():
    weight = torch.ones(3)
    torch.save({"a": weight, "b": weight, "c": weight.detach(), "d": weight[1:]}, "tied.pt")
    state = pystatelens.open("tied.pt").state_dict()
    assert state["a"] is state["b"] is state["c"]
    assert state["d"].tolist() == [1, 1]


def test_plain_values_are_objects_of_python():
    from collections import Counter, OrderedDict, deque

    values = {
        "none": None, "int": 2**80, "negative": -(2**70), "float": -0.0, "complex": 1 - 2j,
        "text": "é\ud800", "bytes": b"\0", "array": bytearray(b"x"), "list": [1, (2, [3])],
        "ordered": OrderedDict(b=1, a=2), "counter": Counter("aab"), "deque": deque([1], 5),
        "set": {1, 2}, "frozen": frozenset([1, (2, 3)]), "dtype": torch.float16, 3: {None: 1, (1, "x"): 2},
        "device": torch.device("cuda:0"), "numpy": np.float32(1.5),
    }
    values["cycle"] = values["list"]
    values["list"].append(values["list"])
    torch.save(values, "plain.pt")
    ours = pystatelens.open("plain.pt").state_dict()
    assert ours["list"][2] is ours["list"] is ours["cycle"]
    for key, value in values.items():
        if key not in ("list", "cycle"):
            assert ours[key] == value and type(ours[key]) is type(value), key
    assert ours["deque"].maxlen == 5 and str(ours["float"]) == "-0.0"


def test_nothing_is_run():
    opaque = [
        value
        for path in sorted((FIXTURES / "attacks").rglob("*.p*"))
        for value in _values(path)
        if isinstance(value, pystatelens.Opaque)
    ]
    assert any(value.name == "system" for value in opaque)


def _values(path):
    values = []
    try:
        checkpoint = pystatelens.open(path)
        for key in checkpoint:
            values.append(checkpoint[key])
    except pystatelens.StatelensError:
        pass
    return values
