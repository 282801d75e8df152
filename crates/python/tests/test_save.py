"""Tests of `save`, and of `load` and `save` in `pystatelens.cstorch`."""

import subprocess
import sys

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


def test_tied_weights_of_a_module_stay_tied():
    module = torch.nn.ModuleDict({"e": torch.nn.Embedding(10, 4), "h": torch.nn.Linear(4, 10, bias=False)})
    module["h"].weight = module["e"].weight
    state = module.state_dict()
    assert state["e.weight"] is not state["h.weight"]
    pystatelens.save(state, "t.pt")
    theirs = torch.load("t.pt")
    assert theirs["e.weight"].data_ptr() == theirs["h.weight"].data_ptr()
    assert torch.equal(theirs["e.weight"], state["e.weight"])
    pystatelens.cstorch.save(state, "t.mdl")
    ours = pystatelens.cstorch.load("t.mdl")
    assert ours["e.weight"] is ours["h.weight"] and torch.equal(ours["e.weight"], state["e.weight"])


def test_only_equal_views_are_tied():
    base = torch.arange(24.0)
    state = {
        "base": base,
        "again": base[:],
        "part": base[:12],
        "shape": base.view(4, 6),
        "turned": base.view(4, 6).t(),
        "turned again": base.view(4, 6).t(),
        "from 12": base[12:],
        "bits": base.view(torch.int32),
        "every other": base[::2],
        "expanded": base[3:4].expand(5),
        "empty": torch.empty(0),
        "empty too": torch.empty(0),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "negative": torch.tensor([1 + 2j]).conj().imag,
    }
    pystatelens.save(state, "views.pt")
    theirs = torch.load("views.pt")
    assert all(torch.equal(theirs[key], value) for key, value in state.items())
    places = {}
    for key in state:
        places.setdefault((theirs[key].data_ptr(), theirs[key].shape, theirs[key].stride()), []).append(key)
    assert ["base", "again"] in places.values() and ["turned", "turned again"] in places.values()
    assert len(places) == len(state) - 2 - (theirs["empty"].data_ptr() == 0)
    # Formats that hold no views take copies of them.
    pystatelens.save({key: state[key] for key in ("base", "part", "turned")}, "views.safetensors")


def test_tensors_of_open_checkpoints_are_read_when_they_are_written():
    rows = np.arange(40_000, dtype="float32").reshape(200, 200)
    np.savez_compressed("packed.npz", rows=rows, text=np.array(["ab", "c"]))
    pystatelens.save({"rows": torch.from_numpy(rows)}, "chunked.mdl", compression="gzip")
    torch.save({"t": torch.from_numpy(rows).t(), "tied": (one := torch.ones(3)), "again": one}, "strided.pt")
    packed, chunked = pystatelens.open("packed.npz"), pystatelens.open("chunked.mdl")
    strided = pystatelens.open("strided.pt")
    state = {
        **dict(strided.tensors()),
        "packed": packed["rows"],
        "chunked": chunked["rows"],
        "slice": chunked["rows"][10:20, ::3],
        "cast": packed["rows"].cast("float64"),
        "memory": rows,
    }
    for name in ("lazy.pt", "lazy.mdl", "lazy.npz", "lazy.safetensors"):
        pystatelens.save(state, name, lossy=True)
        ours = pystatelens.open(name)
        assert pystatelens.verify(name)["sound"]
        assert np.array_equal(ours["t"].numpy(), rows.T)
        assert np.array_equal(ours["packed"].numpy(), rows)
        assert np.array_equal(ours["chunked"].numpy(), rows)
        assert np.array_equal(ours["slice"].numpy(), rows[10:20, ::3])
        assert ours["cast"].dtype == "float64" and np.array_equal(ours["cast"].numpy(), rows)
    theirs = torch.load("lazy.pt", weights_only=False)
    assert theirs["tied"].data_ptr() == theirs["again"].data_ptr()


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_saving_tensors_of_open_checkpoints_is_bounded_in_memory(tmp_path):
    size = 1 << 28
    with open("large.safetensors", "wb") as file:
        header = f'{{"w":{{"dtype":"U8","shape":[{size >> 13},{1 << 13}],"data_offsets":[0,{size}]}}}}'.encode()
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    script = """
import pystatelens
checkpoint = pystatelens.open("large.safetensors")
pystatelens.save({**dict(checkpoint.tensors()), "half": checkpoint["w"][::2]}, "copy.safetensors")
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    # In kilobytes: the tensors have 400 MB.
    assert int(run.stdout) < 200_000


def test_a_mapping_or_checkpoint_is_a_state_dict(examples):
    from types import MappingProxyType

    pystatelens.save(MappingProxyType({"a": MappingProxyType({"b": np.ones(2)})}), "m.pt", lossy=True)
    assert list(pystatelens.open("m.pt")) == ["a.b"]


def test_a_state_dict_is_verified_measured_and_compared():
    state = {"w": torch.arange(6.0), "n": {"x": torch.tensor([1.0, float("nan")])}}
    torch.save(state, "state.pt")
    assert pystatelens.diff("state.pt", state)["differences"] == []
    assert pystatelens.verify(state)["sound"] and not pystatelens.verify(state, finite=True)["sound"]
    assert pystatelens.stats(state, "w")["tensors"][0]["max"] == 5
    state["w"] = state["w"] + 1
    assert [one["key"] for one in pystatelens.diff("state.pt", state)["differences"]] == ["w"]


def test_arrays_of_all_dtypes_of_numpy_are_saved():
    arrays = {
        "text": np.array(["ab", "ç"]),
        "bytes": np.array([b"ab", b"c"]),
        "dates": np.array(["2020-01-01", "NaT"], "M8[D]"),
        "times": np.array([1, 2], "m8[us]"),
        "records": np.array([(1, 2.5, [1, 2])], [("a", "i4"), ("b", "f8"), ("c", "u1", (2,))]),
        "nested": np.zeros(2, [("x", [("y", "<U2"), ("z", "f4")])]),
        "long": np.array([1.5], "longdouble"),
        "big": np.arange(3, dtype=">f8"),
        "void": np.zeros(2, "V3"),
        "scalar": np.float32(2.5),
        "bfloat16": np.ones(2, ml_dtypes.bfloat16),
    }
    pystatelens.save(arrays, "arrays.npz", lossy=True)
    with np.load("arrays.npz") as theirs:
        for key, array in arrays.items():
            if key != "bfloat16":
                assert theirs[key].dtype == np.asarray(array).dtype.newbyteorder("="), key
                assert np.array_equal(theirs[key], array) or key == "dates", key
        assert theirs["dates"].tolist() == arrays["dates"].tolist()
    ours = pystatelens.open("arrays.npz")
    for key in ("text", "records", "dates"):
        pystatelens.save({key: ours[key]}, "again.npz", replace=True)
        again = np.load("again.npz")[key]
        assert again.dtype == arrays[key].dtype and again.tobytes() == arrays[key].tobytes()


def test_sparse_and_quantised_tensors_and_opaque_objects_are_saved():
    import datetime

    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    quantised = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 3, torch.qint8)
    channels = torch.quantize_per_channel(
        dense, torch.tensor([0.5, 0.25], dtype=torch.float64), torch.tensor([0, 1]), 0, torch.quint8
    )
    state = {
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "quantised": quantised,
        "channels": channels,
        "date": datetime.date(2024, 1, 2),
    }
    pickled = {key: value for key, value in state.items() if key != "date"}
    pystatelens.save(pickled, "mixed.pt")
    theirs = torch.load("mixed.pt")
    for key in ("coo", "csr", "csc"):
        assert theirs[key].layout == state[key].layout and torch.equal(theirs[key].to_dense(), dense)
    for key in ("quantised", "channels"):
        assert theirs[key].dtype == state[key].dtype and torch.equal(theirs[key].dequantize(), state[key].dequantize())
    torch.save(state, "theirs.pt")
    for framework in ("lazy", "torch"):
        again = pystatelens.open("theirs.pt").state_dict(framework=framework)
        assert isinstance(again["date"], pystatelens.Opaque)
        pystatelens.save(again, "again.pt", lossy=True, replace=True)
        loaded = torch.load("again.pt")
        assert torch.equal(loaded["coo"].to_dense(), dense) and "2024" in str(loaded["date"])
        assert torch.equal(loaded["channels"].dequantize(), channels.dequantize())


def test_an_open_checkpoint_is_saved_whole(examples):
    pystatelens.save(pystatelens.open("trainer.pt"), "copy.pt")
    assert torch.load("copy.pt")["model"]["layers"]["0"]["weight"].shape == (4, 6)


def test_file_objects_are_written(examples):
    import io

    file = io.BytesIO()
    report = pystatelens.save({"w": np.arange(3)}, file, to="npz")
    assert report["bytes"] == len(file.getvalue())
    assert np.load(io.BytesIO(file.getvalue()))["w"].tolist() == [0, 1, 2]
    with pytest.raises(pystatelens.RefusedError, match="Choose the format with `to`"):
        pystatelens.save({"w": np.arange(3)}, file)


def test_some_values_of_a_checkpoint_are_replaced(examples):
    embedding = torch.arange(6.0).reshape(3, 2)
    state = {"model": {"head": embedding, "wte": embedding, "norm": torch.ones(2)}, "step": 3, "old": [1]}
    torch.save(state, "old.pt")
    new = torch.full((3, 2), 7.0)
    report = pystatelens.convert(
        "old.pt", "new.pt", update={"model.norm": new[0], "step": 4, "note": "edited", "copy": new[0]}, drop="old*"
    )
    theirs = torch.load("new.pt")
    assert report["files"] == ["new.pt"] and list(theirs) == ["model", "step", "note", "copy"]
    assert theirs["step"] == 4 and theirs["note"] == "edited" and theirs["model"]["norm"].tolist() == [7, 7]
    assert theirs["copy"].tolist() == [7, 7]
    assert theirs["model"]["head"].data_ptr() == theirs["model"]["wte"].data_ptr()
    # Tied keys change together.
    pystatelens.convert(pystatelens.open("old.pt"), "tied.pt", update={"model.wte": new})
    tied = torch.load("tied.pt")["model"]
    assert torch.equal(tied["head"], new) and tied["head"].data_ptr() == tied["wte"].data_ptr()
    # A tensor of another checkpoint is read when it is written.
    pystatelens.convert("old.pt", "lazy.pt", update={"model.head": pystatelens.open("new.pt")["model.norm"][:1]})
    assert torch.load("lazy.pt")["model"]["head"].tolist() == [7]
    assert pystatelens.open("old.pt")["step"] == 3


def test_conversions_are_planned(examples):
    import os

    options = {"states": "model", "nest": False, "rename_map": {"layers.0.weight": "h.0.w"}, "cast": "bfloat16"}
    planned = pystatelens.convert("trainer.pt", "planned.npz", dry_run=True, lossy=True, **options)
    assert planned["dry_run"] and not os.path.exists("planned.npz")
    assert planned["files"] == ["planned.npz"] and planned["bytes"] > 100 and planned["keys"]
    counted = pystatelens.convert("trainer.pt", "planned.npz", dry_run="scan", lossy=True, **options)
    assert counted["cast"]["changed"] == 0
    divided = pystatelens.convert(
        "trainer.pt", "parts.safetensors", states="model", lossy=True, shards={"*norm*": "norms.safetensors"}
    )
    assert "norms.safetensors" in divided["files"] and len(pystatelens.open("norms.safetensors")) == 2
    pystatelens.convert("model.safetensors", "nested.pt", nest=True, to=pystatelens.open("trainer.pt").format.id)
    assert set(torch.load("nested.pt")) == {"layers", "norm"}


def test_progress_counts_one_unit_to_the_end():
    seen = []
    arrays = {f"w{number}": np.zeros(1 << 20) for number in range(4)}
    np.savez("many.npz", **arrays)
    pystatelens.convert("many.npz", "o.npz", progress=lambda done, total: seen.append((done, total)))
    totals = {total for _, total in seen if total}
    assert len(totals) == 1 and seen[-1][0] == seen[-1][1] == totals.pop()


def test_titles_and_byte_orders_of_dtypes_are_saved():
    record = np.dtype([("plain", "i4"), (("a title", "titled"), "f8")])
    state = {"array": np.zeros(2, record), "order": np.dtype(">f4"), "own": np.dtype("f4"), "torch": torch.float16}
    pystatelens.save(state, "titles.mdl", lossy=True)
    ours = pystatelens.open("titles.mdl").state_dict(framework="numpy")
    assert ours["order"] == np.dtype(">f4") and ours["own"] == np.dtype("<f4") and ours["order"] != ours["own"]
    pystatelens.save({"array": state["array"]}, "titles.npz")
    # NumPy writes titles into the header, and reads them from it.
    assert np.load("titles.npz")["array"].dtype.fields["a title"] == record.fields["a title"]
    assert pystatelens.open("titles.npz")["array"].numpy().dtype == record


def test_views_of_one_storage_share_it_in_files_of_torch():
    base = torch.arange(4_000.0)
    state = {"base": base, "part": base[1_000:2_000], "turned": base.view(40, 100).t(), "alone": torch.ones(10)}
    pystatelens.save(state, "views.pt")
    torch.save(state, "theirs.pt")
    for source in ("views.pt", "theirs.pt"):
        pystatelens.save(dict(pystatelens.open(source).tensors()), "again.pt", replace=True)
        for path in ("views.pt", "again.pt"):
            theirs = torch.load(path)
            assert all(torch.equal(theirs[key], value) for key, value in state.items())
            storages = {key: theirs[key].untyped_storage().data_ptr() for key in state}
            assert storages["base"] == storages["part"] == storages["turned"] != storages["alone"]
            theirs["base"][1_000] = -1
            assert theirs["part"][0] == -1
    # A small view of a large storage is written alone.
    pystatelens.save({"small": base[:10]}, "small.pt")
    assert len(open("small.pt", "rb").read()) < 4_000
    pystatelens.save(state, "views.safetensors")
    assert len(pystatelens.open("views.safetensors")) == 4


def test_outputs_wait_for_the_disk(examples):
    report = pystatelens.save({"w": np.ones(3)}, "new.safetensors", sync=True)
    assert report["files"] == ["new.safetensors"]
    plain = pystatelens.convert("trainer.pt", "a.npz", states="model")
    durable = pystatelens.convert("trainer.pt", "b.npz", states="model", sync=True)
    assert open("a.npz", "rb").read() == open("b.npz", "rb").read()
    assert plain["bytes"] == durable["bytes"]
    with pytest.raises(TypeError, match="no option"):
        pystatelens.job.plan("trainer.pt", "c.npz", "job", durable=True)


def test_quantised_weights_are_written_as_numbers(fixtures, examples):
    source = fixtures / "quantized/awq_gemm"
    pystatelens.convert(source, "dense.safetensors", dequantize="bfloat16", lossy=True)
    dense = pystatelens.open("dense.safetensors")
    expected = pystatelens.open(source).dequantized("bfloat16")
    assert list(dense) == list(expected) == ["l.weight"]
    assert torch.equal(dense["l.weight"].torch(), expected["l.weight"].torch())
    with pytest.raises(pystatelens.RefusedError, match="dequantize"):
        pystatelens.convert("model.safetensors", in_place=True, dequantize="float16")


def test_state_dicts_share_memory_and_keep_parameters_as_torch_does(examples):
    base = torch.arange(24, dtype=torch.float32)
    state = {
        "rows": base[6:18].reshape(2, 6),
        "column": base[8:20:2],
        "scalar": base[10],
        "alone": torch.ones(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.zeros(2), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
    }
    torch.save(state, "views.pt")
    theirs = torch.load("views.pt", weights_only=False)
    ours = pystatelens.open("views.pt").state_dict()
    for key, value in theirs.items():
        assert torch.equal(ours[key], value) and ours[key].dtype == value.dtype, key
        assert type(ours[key]) is type(value) and ours[key].requires_grad == value.requires_grad, key
        assert ours[key].stride() == value.stride(), key
    for loaded in (theirs, ours):
        loaded["rows"][0, 2] = -1
        assert loaded["column"][0] == -1
        shared = {loaded[key].untyped_storage().data_ptr() for key in ("rows", "column", "scalar")}
        assert len(shared) == 1
        assert loaded["alone"].untyped_storage().data_ptr() not in shared
    part = pystatelens.open("views.pt").state_dict("rows")
    assert part.untyped_storage().nbytes() == part.nbytes
    arrays = pystatelens.open("views.pt").state_dict(framework="numpy")
    assert isinstance(arrays["parameter"], np.ndarray)
