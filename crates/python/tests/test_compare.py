"""Tests of the options of `diff`, and of `renames`, `rank` and the conditions of `stats`."""

import json

import numpy as np
import pystatelens
import pytest
import torch
from test_reports import command, fits


@pytest.fixture
def sides():
    numbers = torch.arange(60.0)
    left = {f"h.{layer}.w": numbers.reshape(3, 20) + layer for layer in range(3)} | {"norm": torch.ones(4)}
    right = {f"net.layers.{layer}.w": left[f"h.{layer}.w"].clone() for layer in range(3)}
    right |= {"net.norm": torch.ones(4)}
    right["net.layers.1.w"][0, 0] = 9
    torch.save(left, "left.pt")
    torch.save(right, "right.pt")


def test_keys_are_selected_and_renamed(sides):
    renamed = {"rename": {r"^h\.(\d+)": "layers.$1"}, "prefix": "net."}
    report = pystatelens.diff("left.pt", "right.pt", **renamed)
    assert [one["key"] for one in report["differences"]] == ["net.layers.1.w"] and report["keys"] == 4
    options = ["--rename", r"^h\.(\d+)=>layers.$1", "--prefix", "net."]
    assert report == command("diff", "--json", "left.pt", "right.pt", *options, status=1)
    assert pystatelens.diff("left.pt", "right.pt", **renamed, exclude=["h.1.w", "net.layers.1.w"])["matches"]
    assert pystatelens.diff("left.pt", "right.pt", prefix="net.", select="*norm")["matches"]
    state = torch.load("right.pt")
    assert pystatelens.diff(pystatelens.open("right.pt"), state, select="*norm")["keys"] == 1
    names = {"norm": "net.norm", **{f"h.{layer}.w": f"net.layers.{layer}.w" for layer in range(3)}}
    assert len(pystatelens.diff("left.pt", "right.pt", rename_map=names)["differences"]) == 1
    with pytest.raises(pystatelens.RefusedError, match="the prefix `nothing.` is missing"):
        pystatelens.diff("left.pt", "left.pt", strip_prefix="nothing.")
    with pytest.raises(pystatelens.RefusedError, match="no key matches nothing") as caught:
        pystatelens.diff("left.pt", "right.pt", select="nothing")
    assert "pystatelens.ls" in str(caught.value)


def test_differences_are_sorted_and_grouped(sides):
    renamed = {"rename": {r"^h\.": "net.layers."}}
    theirs = command(
        "diff", "--json", "left.pt", "right.pt", "--rename", r"^h\.=>net.layers.", "--by-layer", status=1
    )
    ours = pystatelens.diff("left.pt", "right.pt", by_layer=True, **renamed)
    assert ours == theirs and ours["roles"]
    state = torch.load("left.pt")
    state["h.0.w"] += 1e-3
    state["h.2.w"] *= 2
    changed = pystatelens.diff("left.pt", state, sort="change")["differences"]
    assert [one["key"] for one in changed] == ["h.2.w", "h.0.w"]
    assert [one["key"] for one in pystatelens.diff("left.pt", state)["differences"]] == ["h.0.w", "h.2.w"]
    with pytest.raises(pystatelens.RefusedError, match="sort is 'size'"):
        pystatelens.diff("left.pt", state, sort="size")


def test_renamed_tensors_are_found(sides):
    report = pystatelens.renames("left.pt", "right.pt")
    assert report == command("diff", "--renames", "--json", "left.pt", "right.pt")
    assert fits(report, pystatelens.reports.RenameReport)
    names = {pair["left"]: pair["right"] for pair in report["renames"]}
    assert names["h.1.w"] == "net.layers.1.w" and len(names) == 4
    assert pystatelens.diff("left.pt", "right.pt", rename_map=names)["keys"] == 4
    pystatelens.convert("left.pt", "renamed.pt", rename_map=names)
    assert set(torch.load("renamed.pt")) == set(torch.load("right.pt"))
    assert len(pystatelens.renames("left.pt", "right.pt", select="*norm")["renames"]) == 1
    with pytest.raises(TypeError, match="no option 'by'"):
        pystatelens.renames("left.pt", "right.pt", by=3)


def test_rows_columns_and_kernels_are_ranked():
    matrix = np.zeros((5, 4), "float32")
    matrix[2], matrix[4, 3], matrix[0, 3] = 3, -7, np.nan
    np.savez("m.npz", w=matrix, k=np.arange(24, dtype="f4").reshape(2, 3, 2, 2), text=np.array(["a"]))
    checkpoint = pystatelens.open("m.npz")
    for lines in ("rows", "columns"):
        report = pystatelens.rank(checkpoint["w"], lines, top=2)
        assert report == command("stats", "--json", "--rank", lines, "--top", "2", "m.npz", "w")
        assert fits(report, pystatelens.reports.RankReport), report
    rows = pystatelens.rank(checkpoint["w"])
    assert rows["largest"][0]["index"] == [4] and rows["largest"][0]["norm"] == 7 and rows["zero"] == 2
    assert pystatelens.rank(checkpoint["w"][:3])["largest"][0]["index"] == [2]
    kernels = pystatelens.rank(checkpoint["k"], "kernels", top=1)
    assert (kernels["count"], kernels["largest"][0]["index"]) == (6, [1, 2])
    assert pystatelens.rank(checkpoint["w"].cast("float16"))["largest"][0]["norm"] == 7
    with pytest.raises(pystatelens.RefusedError, match="has no rows"):
        pystatelens.rank(checkpoint["w"][0])
    with pytest.raises(pystatelens.RefusedError, match="rows, columns or kernels"):
        pystatelens.rank(checkpoint["w"], "diagonals")
    with pytest.raises(pystatelens.StatelensError):
        pystatelens.rank(checkpoint["text"])
    with pytest.raises(TypeError, match="expected a tensor"):
        pystatelens.rank("m.npz")


def test_tensors_are_selected_by_their_statistics():
    np.savez("s.npz", zero=np.zeros(4), some=np.array([0, 0, 0, 5.0]), nan=np.array([np.nan, 1.0]))

    def keys(*conditions, **options):
        report = pystatelens.stats("s.npz", where=conditions, **options)
        return [tensor["key"] for tensor in report["tensors"]]

    assert keys("nan>0") == ["nan"] and keys("zeros>50%") == ["zero", "some"]
    assert keys("zeros>50%", "max>1") == ["some"] and keys() == ["zero", "some", "nan"]
    assert pystatelens.stats("s.npz", where="nan>0")["groups"][0]["tensors"] == 1
    options = ["--where", "zeros>50%", "--rows", "--scale", "log", "--bins", "8"]
    ours = pystatelens.stats("s.npz", where="zeros>50%", rows=True, scale="log", bins=8)
    assert ours == command("stats", "--json", "s.npz", *options)
    for condition in ("nan", "nothing>1", "std>50%", "nan>x"):
        with pytest.raises(pystatelens.RefusedError, match=f"`{condition}`"):
            pystatelens.stats("s.npz", where=condition)
    with pytest.raises(pystatelens.RefusedError, match="scale is 'cubic'"):
        pystatelens.stats("s.npz", scale="cubic")


def test_rows_have_the_documented_type():
    np.savez("r.npz", w=np.arange(12.0).reshape(3, 4))
    report = pystatelens.stats("r.npz", rows=True)
    assert fits(report, pystatelens.reports.StatsReport), report


def test_small_leaves_are_left_out_and_configs_are_named(examples, fixtures):
    assert [leaf["key"] for leaf in pystatelens.ls("trainer.pt", min_bytes=30)] == ["model.layers.0.weight"]
    assert pystatelens.ls("trainer.pt", min_bytes="1kB") == []
    assert pystatelens.ls("trainer.pt", min_bytes=24, tensors=True) == command(
        "ls", "--json", "--min-bytes", "24", "trainer.pt"
    )["entries"]
    config = {"model_type": "llama", "num_hidden_layers": 7, "architectures": ["LlamaForCausalLM"]}
    (examples / "mine.json").write_text(json.dumps(config))
    ours = pystatelens.info("model.safetensors", model=True, config="mine.json")
    assert ours == command("info", "--json", "--model", "--config", "mine.json", "model.safetensors")
    assert ours != pystatelens.info("model.safetensors", model=True)
    with pytest.raises(pystatelens.StatelensError):
        pystatelens.info("model.safetensors", config="missing.json")
