"""Tests of reports and conversions: they equal those of the command, and exceptions and Ctrl-C cancel them."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pystatelens
import pytest
import torch


def command(*arguments, status=0):
    """Returns the JSON that the command of the package prints."""
    run = subprocess.run(
        [sys.executable, "-m", "pystatelens", *map(str, arguments)], capture_output=True, text=True
    )
    assert run.returncode == status, run.stderr
    return json.loads(run.stdout)


def test_reports_equal_those_of_the_command(fixtures):
    source = fixtures / "torch/zip_module_state_dict.pt"
    other = fixtures / "cerebras/v2.10.0/gpt_small.mdl"
    other = other if other.exists() else next((fixtures / "cerebras/v2.10.0").glob("*.mdl"))
    assert pystatelens.verify(source) == command("verify", "--json", source)
    assert pystatelens.scan(source) == command("scan", "--json", source)
    assert pystatelens.info(source) == command("info", "--json", source)
    assert pystatelens.info(source, model=True)["model"] == command("info", "--json", "--model", source)["model"]
    assert pystatelens.stats(source) == command("stats", "--json", source)
    assert pystatelens.stats(source, by="layer") == command("stats", "--json", "--by", "layer", source)
    assert pystatelens.diff(source, other) == command("diff", "--json", source, other, status=1)
    assert pystatelens.check(source, other) == command(
        "check", "--json", source, "--against", other, status=1
    )
    assert json.loads(pystatelens.summary(source, "json")) == command("summary", source, "--to", "json")


def test_reports_take_open_checkpoints_and_file_objects(examples):
    checkpoint = pystatelens.open("trainer.pt")
    with open("trainer.pt", "rb") as file:
        for source in (checkpoint, file):
            assert pystatelens.verify(source)["sound"]
            assert pystatelens.scan(source)["findings"] == []
            assert pystatelens.info(source)["leaves"] == 3
            assert len(pystatelens.stats(source)["tensors"]) == 2
            assert pystatelens.diff(source, "trainer.pt")["matches"]


def test_damage_is_a_result_of_verify(examples):
    data = bytearray((examples / "trainer.pt").read_bytes())
    (examples / "short.pt").write_bytes(data[: len(data) // 2])
    report = pystatelens.verify("short.pt")
    assert not report["sound"] and report["problems"]


def test_check_takes_the_state_dict_of_a_model(examples):
    model = torch.nn.Linear(6, 4)
    torch.save(model.state_dict(), "linear.pt")
    assert pystatelens.check("linear.pt", model.state_dict())["loads"]
    report = pystatelens.check("linear.pt", torch.nn.Linear(5, 4).state_dict())
    assert not report["loads"] and report["shapes"][0]["key"] == "weight"


@pytest.mark.parametrize("name", ["out.safetensors", "out.pt", "out.mdl", "out.npz"])
def test_conversions_keep_the_values(name, examples):
    report = pystatelens.convert("model.safetensors", name)
    assert report["files"] == [name] and report["bytes"] == os.path.getsize(name)
    ours = pystatelens.open(name).state_dict(framework="numpy")
    assert np.array_equal(ours["norm"], np.ones(6, "float32"))
    with pytest.raises(pystatelens.ExistsError):
        pystatelens.convert("model.safetensors", name)
    pystatelens.convert("model.safetensors", name, replace=True)


def test_losses_are_refused(examples):
    with pytest.raises(pystatelens.RefusedError) as caught:
        pystatelens.convert("trainer.pt", "out.npz", cast="float8_e4m3fn")
    assert caught.value.code == "lossy" and not os.path.exists("out.npz")
    edited = pystatelens.convert(
        "trainer.pt", "out.safetensors", select="model.*", strip_prefix="model.", rename={"norm": "n"}
    )
    assert list(pystatelens.open(edited["files"][0])) == ["layers.0.weight", "n"]


def test_progress_counts_and_stops_the_work(tmp_path):
    np.savez("big.npz", w=np.zeros((64, 1 << 20), "float32"))
    calls = []
    pystatelens.convert("big.npz", "out.safetensors", progress=lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1] > 0
    assert all(before[0] <= after[0] or before[1] != after[1] for before, after in zip(calls, calls[1:]))

    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough

    for work in (
        lambda progress: pystatelens.convert("big.npz", "stopped.mdl", progress=progress),
        lambda progress: pystatelens.stats("big.npz", progress=progress),
        lambda progress: pystatelens.verify("big.npz", progress=progress),
    ):
        with pytest.raises(Enough):
            work(stop)
        with pytest.raises(pystatelens.CancelledError):
            work(lambda done, total: False)
    assert sorted(os.listdir()) == ["big.npz", "model.safetensors", "out.safetensors", "trainer.pt"]


def test_ctrl_c_stops_long_work(tmp_path):
    np.save("big.npy", np.random.default_rng(1).random((64, 1 << 20)))
    started = threading.Event()

    def interrupt():
        started.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            pystatelens.stats("big.npy", progress=lambda *_: started.set())
    thread.join()


def test_other_threads_run_during_the_work(tmp_path):
    np.save("big.npy", np.zeros((32, 1 << 20), "float32"))
    ticks = 0
    stop = threading.Event()

    def count():
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)  # releases the interpreter

    # A thread gets the interpreter only when another thread releases it.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=count)
        thread.start()
        start = ticks
        pystatelens.stats("big.npy")
        assert ticks > start
    finally:
        stop.set()
        sys.setswitchinterval(before)
    thread.join()


@pytest.mark.parametrize("name", [name for name in pystatelens.errors.__all__ if name != "StatelensWarning"])
def test_exceptions_can_be_pickled(name):
    exception = getattr(pystatelens, name)
    error = exception("a.pt: it is bad (at byte 3). Leave it.", "it is bad", "bad", "a.pt", 3, "Leave it.")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is exception and str(copy) == str(error)
    assert vars(copy) == vars(error) and copy.offset == 3
    assert issubclass(exception, pystatelens.StatelensError)


def test_exceptions_derive_from_builtin_ones(examples):
    with pytest.raises(FileNotFoundError):
        pystatelens.open("missing.pt")
    with pytest.raises(KeyError):
        pystatelens.open("trainer.pt")["nothing"]
    (examples / "no.pt").write_bytes(b"this is text, and not a checkpoint")
    with pytest.raises(pystatelens.UnsupportedError):
        pystatelens.open("no.pt")


def test_the_table_for_notebooks(examples):
    arrays = {f"layers.{i}.weight": np.zeros((2, 3), "float32") for i in range(40)}
    np.savez("many.npz", **{"<script>": np.zeros(1)}, **arrays)
    table = pystatelens.open("many.npz")._repr_html_()
    assert "layers.<wbr>0–39.<wbr>weight" in table and "&lt;script>" in table and "<script" not in table
    assert table.count("<tr>") == 3


def test_the_table_for_notebooks_wraps_long_keys_and_shows_repeated_values(examples):
    key = "k" * 200
    group = {"lr": 0.1, "amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "fused": None}
    pystatelens.save({key: torch.ones(2), "optimizer": {"param_groups": [group]}}, "opt.mdl")
    checkpoint = pystatelens.open("opt.mdl")
    table = checkpoint._repr_html_()
    assert f"overflow-wrap:anywhere\">{key}<" in table
    assert table.count(">False<") == 3 and table.count(">None<") == 2 and "= optimizer" not in table
    assert "= optimizer" not in pystatelens.summary("opt.mdl")
    tied = torch.ones(2)
    torch.save({"a": tied, "b": tied}, "tied.pt")
    assert ">= a<" in pystatelens.open("tied.pt")._repr_html_()


def llama(fixtures):
    """Returns the folder of a model, and an implementation to convert it to."""
    case = next((fixtures / "recipes").glob("llama/*hf-to-cs*"))
    return case / "in", case.name.rsplit("-to-", 1)[1].replace("cs", "cs-")


def test_convert_model_writes_sound_checkpoints(fixtures, tmp_path):
    model, target = llama(fixtures)
    reports = pystatelens.convert_model(model, target, output_dir=tmp_path / "out", drop_unmatched_keys=True)
    assert reports and all(os.path.exists(path) for report in reports for path in report["files"])
    assert all(pystatelens.verify(path)["sound"] for report in reports for path in report["files"])
    with pytest.raises(pystatelens.RefusedError):
        pystatelens.convert_model(model, "nothing-1.0")


ONE_MODEL = """
import os, pathlib, pystatelens, signal, sys

def handled():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    masks = [line.split()[1] for line in lines if line.startswith(("SigIgn", "SigCgt"))]
    # The C library uses signals above 31 for threads.
    return [int(mask, 16) & 0x7fffffff for mask in masks]

before = handled()
pystatelens.convert_model(sys.argv[1], sys.argv[2], output_dir="out", drop_unmatched_keys=True)
assert handled() == before
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGTERM)
"""


def test_convert_model_leaves_signals_to_python(fixtures, tmp_path):
    model, target = llama(fixtures)
    process = subprocess.run([sys.executable, "-c", ONE_MODEL, model, target], capture_output=True)
    assert process.returncode == -signal.SIGTERM, process.stderr


def test_progress_stops_convert_model(fixtures, tmp_path):
    model, target = llama(fixtures)

    def interrupt(done, total):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pystatelens.convert_model(
            model, target, output_dir=tmp_path / "out", drop_unmatched_keys=True, progress=interrupt
        )
    assert not [path for path in tmp_path.rglob("out/*") if path.suffix in (".mdl", ".part")]


def test_leaves_are_listed(examples):
    leaves = pystatelens.ls("trainer.pt")
    assert [leaf["key"] for leaf in leaves] == list(pystatelens.open("trainer.pt"))
    assert leaves[0]["dtype"] == "float32" and leaves[0]["shape"] == [4, 6]
    assert [leaf["key"] for leaf in pystatelens.ls("trainer.pt", tensors=True)] == list(pystatelens.open("trainer.pt"))[:2]
    assert pystatelens.ls("trainer.pt", dtype="float16") == []
    assert len(pystatelens.ls({"a": 1, "b": {"c": 2}}, ["a", "b.*"])) == 2


def test_manifests_find_changes(examples):
    import json

    manifest = pystatelens.manifest("trainer.pt")
    (examples / "manifest.json").write_text(json.dumps(manifest))
    for listed in (manifest, "manifest.json", examples / "manifest.json"):
        assert pystatelens.verify("trainer.pt", manifest=listed)["sound"]
    state = pystatelens.open("trainer.pt").state_dict()
    state["model"]["norm"][0] = 2
    assert not pystatelens.verify(state, manifest=manifest)["sound"]
    with pytest.raises(pystatelens.RefusedError, match="pystatelens.manifest") as caught:
        pystatelens.verify("trainer.pt", manifest={"no": 1})
    assert "statelens manifest" not in str(caught.value)


def fits(value, type_):
    """Returns whether a value has the form of a type of `pystatelens.reports`."""
    import types
    import typing

    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if type_ is typing.Any:
        return True
    if typing.is_typeddict(type_):
        known = typing.get_type_hints(type_)
        required = type_.__required_keys__
        return (
            isinstance(value, dict)
            and required <= set(value) <= set(known)
            and all(fits(item, known[key]) for key, item in value.items())
        )
    if origin is typing.NotRequired:
        return fits(value, arguments[0])
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, arguments[1]) for item in value.values())
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    return isinstance(value, (int, float) if type_ is float else type_)


def test_check_of_a_folder_equals_that_of_the_command(fixtures):
    whole, cut = fixtures / "folders/llama_three_shards", fixtures / "folders/shard_cut"
    assert pystatelens.check(whole) == command("check", whole, "--json")
    report = pystatelens.check(cut)
    assert report == command("check", cut, "--json", status=1)
    assert not report["whole"] and report["findings"][0]["rule"] == "file-cut"
    mild = pystatelens.check(str(cut), levels={"file-cut": "warning"})
    assert mild["whole"] and mild["warnings"] == 1
    with pytest.raises(pystatelens.RefusedError, match="no rule"):
        pystatelens.check(cut, levels={"no-such-rule": "off"})
    with pytest.raises(TypeError, match="against"):
        pystatelens.check({"weight": torch.ones(2)})


def test_reports_have_the_documented_types(examples, fixtures):
    from pystatelens import reports

    state = {"w": torch.tensor([[1.0, float("nan"), 2e38]]), "n": torch.arange(3), "text": "x", "empty": []}
    torch.save({**state, "w": state["w"] + 1, "more": 1}, "other.pt")
    torch.save(state, "state.pt")
    code = b"\x80\x02cthe_package\nThing\nq\x00."
    data = bytearray(open("model.safetensors", "rb").read())
    data[-1] ^= 1
    for report, type_ in [
        (pystatelens.verify("state.pt"), reports.VerifyReport),
        (pystatelens.verify(bytes(data[:-3])), reports.VerifyReport),
        (pystatelens.verify(bytes(data), manifest=pystatelens.manifest("model.safetensors")), reports.VerifyReport),
        (pystatelens.scan(code), reports.ScanReport),
        (pystatelens.scan("state.pt"), reports.ScanReport),
        (pystatelens.diff("state.pt", "other.pt"), reports.DiffReport),
        (pystatelens.diff("state.pt", "model.safetensors"), reports.DiffReport),
        (pystatelens.check("state.pt", "other.pt"), reports.CheckReport),
        (pystatelens.check("state.pt"), reports.FolderReport),
        (pystatelens.check("trainer.pt", {"layers.0.weight": torch.ones(2)}, release="2.9"), reports.CheckReport),
        (pystatelens.stats("state.pt", by="dtype"), reports.StatsReport),
        (pystatelens.manifest("state.pt"), reports.Manifest),
        (pystatelens.convert("state.pt", "out.npz", cast="float16", lossy=True), reports.ConvertReport),
        (pystatelens.convert("state.pt", "o.npz", dry_run="scan", lossy=True), reports.ConvertReport),
        (pystatelens.convert("state.pt", "o.npz", dry_run=True, prefix="a.", lossy=True), reports.ConvertReport),
        (pystatelens.save(state, "saved.pt"), reports.ConvertReport),
    ]:
        assert fits(report, type_), (type_, report)
    for path in ("torch/zip_python_objects.pt", "numpy"):
        for leaf in pystatelens.ls(fixtures / path) if (fixtures / path).is_file() else []:
            assert fits(leaf, reports.LeafInfo), leaf


def test_stats_report_what_is_not_accepted(examples):
    bad = np.ones((2, 3), "f4")
    bad[1, 1], holes = np.nan, np.array([1, np.inf], "f4")
    arrays = {"bad": bad, "holes": holes, "same": np.full(4, 2, "f4"), "good": np.arange(4, dtype="f4")}
    pystatelens.save(arrays, "bad.safetensors")
    report = pystatelens.stats("bad.safetensors", fail_on=["nan", "inf"])
    assert report == command("stats", "--json", "bad.safetensors", "--fail-on", "nan,inf", status=1)
    assert report["failed_on"] == ["bad", "holes"] and report["not_checked"] == []
    assert pystatelens.stats("bad.safetensors", "good", fail_on="nan,inf,zero,constant")["failed_on"] == []
    assert pystatelens.stats("bad.safetensors", fail_on="constant")["failed_on"] == ["same"]
    assert "failed_on" not in pystatelens.stats("bad.safetensors")
    with pytest.raises(pystatelens.RefusedError, match="nan, inf, zero, constant or scales"):
        pystatelens.stats("bad.safetensors", fail_on="negative")


def test_stats_and_diff_of_quantised_weights_equal_those_of_the_command(fixtures):
    packed = fixtures / "quantized/awq_gemm"
    report = pystatelens.stats(packed)
    assert report == command("stats", "--json", packed)
    dense = pystatelens.open(packed).dequantized()
    differences = pystatelens.diff(packed, dense)
    assert differences["matches"] and differences["tensors"] > 0


def test_check_takes_lists_of_keys(examples):
    keys = "layers.0.weight float32 [4, 6]\nnorm float32 [6]\n"
    open("keys.txt", "w").write(keys)
    against = ("check", "--json", "model.safetensors", "--against")
    assert pystatelens.check("model.safetensors", "keys.txt") == command(*against, "keys.txt")
    entries = pystatelens.ls("model.safetensors")
    manifest = pystatelens.manifest("model.safetensors")
    json.dump(manifest, open("manifest.json", "w"))
    assert pystatelens.check("model.safetensors", "manifest.json")["loads"]
    assert pystatelens.check("model.safetensors", entries)["loads"]
    assert pystatelens.check("model.safetensors", manifest)["loads"]
    entries[1]["shape"] = [7]
    wrong = pystatelens.check("model.safetensors", entries)
    assert not wrong["loads"] and wrong["shapes"][0]["key"] == "norm"
    open("text.txt", "w").write("<html>")
    with pytest.raises(pystatelens.StatelensError):
        pystatelens.check("model.safetensors", "text.txt")


def test_an_index_is_mended(fixtures, tmp_path):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(fixtures / "folders/total_size_wrong", folder)
    before = pystatelens.check(folder)
    assert before["findings"]
    after = pystatelens.check(folder, fix_index=True)
    assert len(after["findings"]) < len(before["findings"])
    assert (folder / "model.safetensors.index.json.bak").exists()


def test_links_hold_the_structure(examples):
    link = pystatelens.summary("trainer.pt", link="https://example.org/page/")
    line = [sys.executable, "-m", "pystatelens", "summary", "trainer.pt", "--link", "https://example.org/page/"]
    assert link == subprocess.run(line, capture_output=True, text=True).stdout.strip()
    coded = pystatelens.summary("trainer.pt", link="https://example.org/", keys="coded", values=True, findings=False)
    assert coded.startswith("https://example.org/#s=1.") and coded != link
    with pytest.raises(pystatelens.RefusedError, match="already has a #"):
        pystatelens.summary("trainer.pt", link="https://example.org/#a")
    with pytest.raises(pystatelens.RefusedError, match="neither"):
        pystatelens.summary("trainer.pt", "html", link="https://example.org/")
    with pytest.raises(pystatelens.RefusedError, match="plain, coded or hidden"):
        pystatelens.summary("trainer.pt", link="https://example.org/", keys="secret")
    assert pystatelens.summary("trainer.pt", "svg").startswith("<svg")


def test_reports_are_tables(examples):
    leaves = pystatelens.ls("trainer.pt")
    tensors = pystatelens.stats("trainer.pt")["tensors"]
    for name in ("pandas", "polars"):
        library = pytest.importorskip(name)
        table = library.DataFrame(leaves)
        assert list(table["key"]) == [leaf["key"] for leaf in leaves]
        rows = [{"key": one["key"], "mean": one["mean"]} for one in tensors]
        assert list(library.DataFrame(rows)["mean"]) == [11.5, 1.0]


def test_metadata_of_safetensors_is_readable(fixtures):
    groups = pystatelens.info(fixtures / "hf_sharded_safetensors")["groups"]
    assert groups[""] == {"format": "pt"}
