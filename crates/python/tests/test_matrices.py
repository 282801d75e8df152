"""Tests of reports about single tensors: singular values, differences, pictures, code."""

import numpy as np
import pystatelens
import pytest
from test_reports import command


@pytest.fixture
def weight(examples):
    return pystatelens.open("model.safetensors")["layers.0.weight"]


def test_singular_values_equal_those_of_numpy_and_the_command(weight):
    report = pystatelens.singular(weight)
    assert report == command("singular", "--json", "model.safetensors", "layers.0.weight")
    assert np.allclose(report["values"], np.linalg.svd(weight.numpy(), compute_uv=False), atol=1e-6)
    assert report["rank"] == np.linalg.matrix_rank(weight.numpy()) and report["whole"]
    part = pystatelens.singular(weight[:2, ::3])
    assert np.allclose(part["values"], np.linalg.svd(weight.numpy()[:2, ::3], compute_uv=False), atol=1e-6)


def test_singular_values_are_planned(weight):
    report = pystatelens.singular(weight, dry_run=True)
    assert report == command("singular", "--json", "--dry-run", "model.safetensors", "layers.0.weight")
    assert "values" not in report and report["plan"]["passes"] == 1


def test_only_matrices_have_singular_values(examples):
    with pytest.raises(pystatelens.RefusedError, match="matrix"):
        pystatelens.singular(pystatelens.open("model.safetensors")["norm"])
    with pytest.raises(pystatelens.RefusedError, match="exclude"):
        pystatelens.singular(pystatelens.open("model.safetensors")["layers.0.weight"], all=True, top=2)
    with pytest.raises(pystatelens.RefusedError, match="top is 65"):
        pystatelens.singular(pystatelens.open("model.safetensors")["layers.0.weight"], top=65)
    with pytest.raises(TypeError, match="tensor of an open checkpoint"):
        pystatelens.singular(np.ones((2, 2)))


def test_tensors_are_compared_in_detail(examples):
    pystatelens.save({"layers.0.weight": np.zeros((4, 6), "f4"), "norm": np.ones(6, "f4")}, "zeros.safetensors")
    sides = ("model.safetensors", "zeros.safetensors")
    report = pystatelens.tensor_diff(*sides, ["layers.0.weight", "norm"], bins=5)
    closer = ("--closer", "layers.0.weight", "--closer", "norm", "--bins", "5")
    assert report == command("diff", "--json", *sides, *closer, status=1)
    assert [tensor["differing"] for tensor in report["tensors"]] == [23, 0] and not report["matches"]
    renamed = pystatelens.tensor_diff("model.safetensors", "trainer.pt", "model.norm", prefix="model.")
    assert renamed["matches"]
    with pytest.raises(pystatelens.NoSuchKeyError):
        pystatelens.tensor_diff(*sides, "nrm")
    with pytest.raises(TypeError, match="no option 'closer'"):
        pystatelens.tensor_diff(*sides, "norm", closer=True)


def test_state_dicts_are_compared_in_detail(examples):
    report = pystatelens.tensor_diff("model.safetensors", {"norm": np.full(6, 3, "f4")}, "norm")
    assert report["tensors"][0]["difference"]["max"] == 2


@pytest.mark.parametrize("end", ["png", "svg"])
def test_pictures_equal_those_of_the_command(weight, end):
    size = pystatelens.picture(weight, f"ours.{end}", width=60, height=40, scale="log")
    options = ("--width", "60", "--height", "40", "--scale", "log", "--json")
    command("export", "model.safetensors", "layers.0.weight", f"theirs.{end}", *options)
    ours, theirs = (open(f"{name}.{end}", "rb").read() for name in ("ours", "theirs"))
    assert ours == theirs and len(ours) == size
    with pytest.raises(pystatelens.ExistsError):
        pystatelens.picture(weight, f"ours.{end}")
    assert pystatelens.picture(weight, f"ours.{end}", width=60, height=40, scale="log", replace=True) == size


def test_pictures_are_those_of_a_matrix(weight):
    with pytest.raises(pystatelens.RefusedError, match="extension"):
        pystatelens.picture(weight, "weight.gif")
    with pytest.raises(pystatelens.RefusedError, match="scale"):
        pystatelens.picture(weight, "weight.png", scale="cubic")
    with pytest.raises(pystatelens.RefusedError, match="width is 0"):
        pystatelens.picture(weight, "weight.png", width=0)
    assert pystatelens.picture(weight[1], "row.png", sync=True) > 0


def test_pictures_of_differences(examples):
    pystatelens.save({"layers.0.weight": np.zeros((4, 6), "f4")}, "zeros.safetensors")
    sides = ("model.safetensors", "zeros.safetensors")
    pystatelens.tensor_diff(*sides, "layers.0.weight", picture="ours.png")
    closer = ("--closer", "layers.0.weight", "--picture", "theirs.png")
    command("diff", "--json", *sides, *closer, status=1)
    assert open("ours.png", "rb").read() == open("theirs.png", "rb").read()
    with pytest.raises(pystatelens.ExistsError):
        pystatelens.tensor_diff(*sides, "layers.0.weight", picture="ours.png")
    with pytest.raises(pystatelens.RefusedError, match="one"):
        pystatelens.tensor_diff(*sides, ["layers.0.weight", "norm"], picture="more.png")


@pytest.mark.parametrize("library", [None, "numpy.memmap"])
def test_code_reads_what_it_names(weight, library):
    code = pystatelens.open("model.safetensors").code("layers.0.weight[1, :2]", library)
    options = () if library is None else (f"={library}",)
    import subprocess
    import sys

    line = [sys.executable, "-m", "pystatelens", "show", "model.safetensors", "layers.0.weight[1, :2]"]
    printed = subprocess.run([*line, "--code" + "".join(options)], capture_output=True, text=True)
    # A library that does not read this format is refused by both.
    assert printed.returncode == 0 and "model.safetensors" in code
    assert code.replace(str(weight._origin[0][0]), "model.safetensors") == printed.stdout


def test_code_of_unknown_libraries_is_refused(examples):
    checkpoint = pystatelens.open("trainer.pt")
    with pytest.raises(pystatelens.RefusedError, match="nolib"):
        checkpoint.code("model.norm", "nolib")
    with pytest.raises(pystatelens.NoSuchKeyError):
        checkpoint.code("model.nrm")
    assert "torch.load" in checkpoint.code("model.norm")
