"""Compares the values of all fixtures with the values that the real libraries read."""

import hashlib
import json
import subprocess
import warnings

import numpy as np
import pystatelens
import pystatelens.cstorch
import pytest
import torch
from conftest import FIXTURES, ROOT
from describe import describe

CEREBRAS = ROOT / "target/python/cerebras/bin/python"
# Functions that return the plain value of an entry in `*.expected.json`, by its `kind`.
PLAIN = {
    "bool": lambda entry: entry["value"],
    "int": lambda entry: int(entry["value"]),
    "float": lambda entry: number(entry["value"]),
    "str": lambda entry: entry["value"],
    "none": lambda entry: None,
}
# The byte order in the file differs from the recorded one.
BIG_ENDIAN = {"bigendian.gguf"}
# Contents of object stores, which the tests of the command serve.
OF_STORES = {"cerebras_s3"}
# Quantised weights, recorded as numbers.
QUANTISED = {"gguf_k"}
# Files with objects of classes, whose attributes have no keys.
OBJECTS = {"zip_python_objects.pt"}
# cerebras.pytorch leaves the memory of this tensor uninitialised.
UNDEFINED = {("full_tensors.mdl", "none")}


def number(text):
    return float.fromhex(text) if "0x" in text else float(text)


def recorded():
    """Yields files with the recorded values by key: hashes of tensors, and plain values."""
    for path in sorted(FIXTURES.rglob("*.expected.json")):
        expected = json.loads(path.read_text())
        entries = expected.get("entries") if isinstance(expected, dict) else None
        stem = path.name.removesuffix(".expected.json")
        names = [stem, f"{stem}.mdl", f"{stem}.index"]
        source = next((it for it in map(path.with_name, names) if it.exists()), None)
        if not entries or source is None or source.name in BIG_ENDIAN or source.parent.name in OF_STORES:
            continue
        # Two keys may have the same flat form.
        values = {}
        for entry in entries:
            key, fields = entry if isinstance(entry, list) else (entry.get("key"), entry)
            if source.parent.name in ("flax", "keras"):
                key = key.replace("/", ".")
            if (source.name, key) in UNDEFINED or "\ud800" in key:
                continue
            if fields.get("sha256") and fields.get("kind") in ("tensor", "ndarray"):
                order = "swapped" if str(fields.get("dtype")).startswith(">") else "sha256"
                values.setdefault(key, []).append((order, fields["sha256"]))
            elif fields.get("kind") in PLAIN and ("value" in fields or fields["kind"] == "none"):
                values.setdefault(key, []).append(("value", PLAIN[fields["kind"]](fields)))
        if values:
            yield pytest.param(source, values, id=str(source.relative_to(FIXTURES)))


def sha256(value):
    return hashlib.sha256(value.tobytes()).hexdigest()


def content(value):
    """Returns a value in the form of `recorded`."""
    if isinstance(value, (pystatelens.Tensor, np.generic)):
        return "sha256", sha256(value)
    return "value", value


def is_same(actual, expected):
    if isinstance(expected, float):
        return repr(actual) == repr(expected)
    return type(actual) is type(expected) and actual == expected


@pytest.mark.parametrize("path, values", recorded())
def test_values_equal_the_recorded_ones(path, values):
    checkpoint = pystatelens.open(path)
    if path.parent.name in QUANTISED:
        checkpoint = checkpoint.dequantized("float32")
    missing = [key for key in values if key not in checkpoint]
    assert missing == [] or path.name in OBJECTS
    for key, expected in values.items():
        if key in missing or isinstance(checkpoint[key], pystatelens.Opaque):
            assert path.name in OBJECTS
            continue
        kind, actual = content(checkpoint[key])
        if expected[0][0] == "swapped":
            kind, actual = "swapped", sha256(checkpoint[key].numpy().byteswap())
        assert any(kind == other and is_same(actual, value) for other, value in expected), key


def rows(value):
    """Returns the description of a loaded value. It omits shared storages: ours hold only what tensors need."""
    return [(path, without_sharing(node)) for path, node in describe(value)]


def without_sharing(node):
    hidden = ("storage", "requires_grad", "class")
    return {name: it for name, it in node.items() if name not in hidden}


def torch_files():
    """Yields files of torch, except attacks, for which torch would allocate any size, and those of one rank, which
    open with the others."""
    for folder in ["cerebras", "dcp_single", "reports", "torch", "torch_crafted"]:
        for path in sorted((FIXTURES / folder).rglob("*")):
            if path.suffix in (".pt", ".pth", ".bin", ".ckpt") and "deepspeed" not in path.parts:
                yield path


@pytest.mark.parametrize("path", torch_files(), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_state_dicts_equal_those_of_torch(path):
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


# Intended differences: we read subclasses of `dict` and `list` without their class, and HDF5 links as ties;
# cerebras.pytorch leaves the memory of a tensor uninitialised.
DIFFERENT = {"dictsub.mdl", "listsub.mdl", "hardlink_alias.mdl", "link_to_self.mdl", "full_tensors.mdl"}


def cstorch_files():
    """Returns the files for `cerebras.pytorch`, or an empty list if its environment is not installed."""
    files = (FIXTURES / "cerebras").rglob("*.mdl") if CEREBRAS.exists() else []
    return sorted(path for path in files if path.name not in DIFFERENT)


@pytest.fixture(scope="module")
def cstorch(tmp_path_factory):
    """Returns the descriptions of all files as `cerebras.pytorch.load` reads them."""
    folder = tmp_path_factory.mktemp("cstorch")
    jobs = [{"id": str(path), "how": "cstorch", "path": str(path), "cast": ""} for path in cstorch_files()]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = ROOT / "tests/interop/load.py"
    arguments = [CEREBRAS, "-W", "ignore", script, folder / "jobs.json", folder / "results.jsonl"]
    subprocess.run(arguments, check=True)
    with (folder / "results.jsonl").open() as lines:
        results = [json.loads(line) for line in lines]
    return {result["id"]: result for result in results}


def without(described, paths):
    """Returns the rows that are not below these paths."""
    return [row for row in described if not any(row[0][: len(path)] == path for path in paths)]


@pytest.mark.parametrize("path", cstorch_files(), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_state_dicts_equal_those_of_cstorch(path, cstorch):
    theirs = cstorch[str(path)]
    if "error" in theirs:
        pytest.skip(f"cerebras.pytorch refuses it: {theirs['error']}")
    # pystatelens does not create objects of classes.
    objects = [path for path, node in theirs["rows"] if node["kind"] == "object"]
    ours = json.loads(json.dumps(rows(pystatelens.cstorch.load(path))))
    expected = [[path, without_sharing(node)] for path, node in theirs["rows"]]
    assert without(ours, objects) == without(expected, objects)


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
            # This member is not an array.
            assert ours[key] == array
            continue
        actual = ours[key].numpy() if isinstance(ours[key], pystatelens.Tensor) else ours[key]
        assert actual.shape == array.shape, key
        assert actual.dtype == array.dtype.newbyteorder("<"), key
        assert actual.tobytes() == np.ascontiguousarray(array.astype(actual.dtype)).tobytes(), key


@pytest.mark.parametrize("path", sorted((FIXTURES / "hdf5").glob("*.h5")), ids=lambda path: path.name)
def test_hdf5(path):
    import h5py
    import hdf5plugin  # noqa: F401  registers filters

    with h5py.File(path) as file:
        ours = pystatelens.open(path)
        compared = 0
        for key, tensor in ours.tensors():
            theirs = file.get(key.replace(".", "/"))
            # We return the bytes of other types unchanged, but h5py converts them.
            if theirs is None or theirs.dtype.kind not in "iufb" or tensor.dtype.startswith("void"):
                continue
            try:
                array, our_bytes = theirs[()], tensor.tobytes()
            except (OSError, pystatelens.UnsupportedError):
                continue
            if len(our_bytes) != array.nbytes:
                # h5py widens floats that NumPy lacks, such as bfloat16.
                assert theirs.dtype.kind == "f"
                continue
            assert tensor.shape == theirs.shape, key
            assert our_bytes == np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes(), key
            compared += 1
        if not compared:
            pytest.skip("there are no plain numbers that both read")


@pytest.mark.parametrize("path", sorted((FIXTURES / "gguf").glob("*.gguf")), ids=lambda path: path.name)
def test_gguf(path):
    import gguf

    try:
        theirs = gguf.GGUFReader(path)
    except Exception as error:
        pytest.skip(f"gguf refuses it: {type(error).__name__}")
    ours = pystatelens.open(path)
    for tensor in theirs.tensors:
        data = tensor.data.astype(tensor.data.dtype.newbyteorder("<"))
        assert ours[tensor.name].tobytes() == data.tobytes(), tensor.name
        assert ours[tensor.name].shape == tuple(int(length) for length in reversed(tensor.shape))


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
