"""Tests of functions for run folders and old checkpoints, and of commands as functions in general."""

import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pystatelens
import pytest
import torch
from test_reports import command, llama


@pytest.fixture
def run(examples):
    """A run folder with four checkpoints, the last of which is cut short."""
    os.mkdir("run")
    for step in (100, 200, 300, 400):
        pystatelens.save({"model": {"w": np.full(100, step)}, "step": step}, f"run/checkpoint_{step}.mdl")
    data = open("run/checkpoint_400.mdl", "rb").read()
    with open("run/checkpoint_400.mdl", "wb") as file:
        file.write(data[: len(data) // 2])
    return "run"


def test_runs_are_listed(run):
    report = pystatelens.runs(run)
    assert report == command("runs", "--json", run)
    assert [file["name"] for file in report["files"]] == [f"checkpoint_{step}.mdl" for step in (100, 200, 300, 400)]
    assert pystatelens.runs(run, quick=True) == command("runs", "--json", "--quick", run)
    values = pystatelens.runs(run, values=True, by="state", group="model")
    assert values == command("runs", "--json", "--values", "--group", "model", run)
    with pytest.raises(pystatelens.StatelensError):
        pystatelens.runs("missing")


def test_the_latest_checkpoint_is_found(run, examples):
    with pytest.warns(pystatelens.StatelensWarning, match="not sound"):
        newest = pystatelens.latest(run)
    assert newest == os.path.join(run, "checkpoint_400.mdl")
    with pytest.warns(pystatelens.StatelensWarning, match="skipped: checkpoint_400.mdl"):
        sound = pystatelens.latest(run, sound=True)
    assert pystatelens.open(sound)["step"] == 300
    os.mkdir("empty")
    with pytest.warns(pystatelens.StatelensWarning) as caught:
        assert pystatelens.latest("empty") is None
    assert "--" not in str(caught[0].message) and caught[0].filename == __file__


def test_old_checkpoints_are_pruned(run):
    planned = pystatelens.prune(run, 1)
    assert planned == command("prune", "--json", "--keep", "1", run)
    assert not planned["applied"] and planned["files"] == ["checkpoint_100.mdl", "checkpoint_200.mdl"]
    assert pystatelens.prune(run, keep=1, every=100)["files"] == []
    applied = pystatelens.prune(run, 1, apply=True)
    assert applied["files"] == planned["files"] and os.path.exists(f"{run}/statelens-trash/checkpoint_100.mdl")
    assert not os.path.exists(f"{run}/checkpoint_100.mdl")
    with pytest.raises(pystatelens.RefusedError, match="keep is 0"):
        pystatelens.prune(run, 0)
    with pytest.raises(pystatelens.RefusedError, match="apply"):
        pystatelens.prune(run, 1, delete=True)


def test_checkpoints_are_merged(examples):
    torch.save({"model": {"head": torch.ones(3)}}, "head.pt")
    report = pystatelens.merge(["trainer.pt", "head.pt"], "merged.pt")
    assert report["files"] == ["merged.pt"]
    assert set(torch.load("merged.pt")["model"]) == {"layers", "norm", "head"}
    with pytest.raises(pystatelens.ExistsError) as caught:
        pystatelens.merge(["trainer.pt", "head.pt"], "merged.pt")
    assert "replace=True" in str(caught.value) and "--" not in str(caught.value)
    pystatelens.merge(["trainer.pt", "head.pt"], "merged.pt", replace=True)
    torch.save({"epoch": 4}, "other.pt")
    with pytest.raises(pystatelens.RefusedError, match="lossy=True"):
        pystatelens.merge(["trainer.pt", "other.pt"], "lost.pt")
    with pytest.warns(pystatelens.StatelensWarning, match="the last of each is kept"):
        pystatelens.merge(["trainer.pt", "other.pt"], "kept.pt", lossy=True)
    assert torch.load("kept.pt")["epoch"] == 4


def test_old_cerebras_checkpoints_are_repaired(fixtures, examples):
    old = examples / "old.mdl"
    old.write_bytes((fixtures / "cerebras/compat/synthetic_1.7.mdl").read_bytes())
    report = pystatelens.fix_checkpoint_spec(old, "fixed.mdl")
    assert report["repairs"] and report["bytes"] == os.path.getsize("fixed.mdl")
    assert report == {
        **command("fix-checkpoint-spec", "--json", old, "--fixed_checkpoint_path", "again.mdl"),
        "output": "fixed.mdl",
    }
    assert open("fixed.mdl", "rb").read() == open("again.mdl", "rb").read()
    pystatelens.fix_checkpoint_spec(old)
    assert os.path.exists("old_fixed.mdl")
    pystatelens.fix_checkpoint_spec(old, in_place=True, upgrade=True)
    assert pystatelens.open(old).format.version == "0.5"
    pystatelens.upgrade(old, "older.mdl", to="0.4", lossy=True)
    assert pystatelens.open("older.mdl").format.version == "0.4"


def test_lists_of_converters_and_formats():
    assert pystatelens.list_converters() == command("list-converters", "--json")
    assert [model["model"] for model in pystatelens.list_converters("llama")["models"]] == ["llama"]
    assert pystatelens.formats() == command("formats", "--json")
    with pytest.raises(pystatelens.RefusedError):
        pystatelens.list_converters("nothing")


def test_files_are_converted_in_place(examples):
    expected = pystatelens.convert("trainer.pt", "expected.pt", cast="float16", rename_map={"model.norm": "model.n"}, lossy=True)
    report = pystatelens.convert("trainer.pt", in_place=True, cast="float16", rename_map={"model.norm": "model.n"}, lossy=True)
    assert report["bytes"] == expected["bytes"]
    assert open("trainer.pt", "rb").read() == open("expected.pt", "rb").read()
    planned = pystatelens.convert("model.safetensors", in_place=True, exclude="norm", dry_run=True)
    assert planned["dry_run"] and len(pystatelens.open("model.safetensors")) == 2
    pystatelens.convert("model.safetensors", in_place=True, exclude="norm")
    assert list(pystatelens.open("model.safetensors")) == ["layers.0.weight"]
    with pytest.raises(pystatelens.RefusedError, match="in_place"):
        pystatelens.convert("model.safetensors", "x.pt", in_place=True)
    with pytest.raises(TypeError, match="only a file on disk"):
        pystatelens.convert(pystatelens.open("trainer.pt"), in_place=True)
    with pytest.raises(TypeError, match="`path` is missing"):
        pystatelens.convert("trainer.pt")


def test_convert_model_takes_a_limit_on_fetching(fixtures, server, examples):
    model, target = llama(fixtures)
    pystatelens.convert(next(model.glob("*.safetensors*")), "llama.safetensors")
    (examples / "config.json").write_bytes((model / "config.json").read_bytes())
    options = {"drop_unmatched_keys": True, "config": "config.json", "model": "llama"}
    url = f"{server.url}/llama.safetensors"
    with pytest.raises(pystatelens.LimitError, match="Allow more with `max_fetch`"):
        pystatelens.convert_model(url, target, max_fetch=100, output_dir="none", **options)
    assert not [path for path in (examples / "none").rglob("*") if path.is_file()]
    # Each call has a limit of its own.
    for folder in ("one", "two"):
        assert pystatelens.convert_model(url, target, max_fetch="1MB", output_dir=folder, **options)


def test_convert_model_is_planned_only(fixtures, tmp_path):
    model, target = llama(fixtures)
    out = tmp_path / "planned"
    reports = pystatelens.convert_model(model, target, output_dir=out, drop_unmatched_keys=True, dry_run=True)
    assert reports and not [path for path in out.rglob("*") if path.is_file()]


def test_notes_of_commands_are_warnings_and_not_output(run):
    script = """
import sys, warnings
import pystatelens
warnings.simplefilter("error")
try:
    pystatelens.latest(sys.argv[1])
except pystatelens.StatelensWarning as warning:
    print("warned", "not sound" in str(warning))
"""
    done = subprocess.run([sys.executable, "-c", script, run], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("warned True\n", "")


def test_several_threads_run_commands(run):
    found, lock = [], threading.Lock()

    def work():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = pystatelens.runs(run)
        with lock:
            found.append(report)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(report == found[0] for report in found)


def test_mistakes_in_arguments_are_refused_in_the_words_of_python(run):
    with pytest.raises(pystatelens.RefusedError) as caught:
        pystatelens.runs(run, values=True, by="colour")
    assert "--" not in str(caught.value) and "usage" not in str(caught.value).lower()


def test_adapters_are_folded(fixtures, tmp_path):
    case = fixtures / "peft/llama_bf16"
    reports = pystatelens.fold_lora(case / "model", adapter=case / "adapter", output_dir=tmp_path / "out")
    assert reports
    folded = pystatelens.open(tmp_path / "out/model_folded")
    merged = pystatelens.open(case / "merged/model.safetensors")
    assert pystatelens.diff(folded, merged)["matches"]
    with pytest.raises(pystatelens.ExistsError):
        pystatelens.fold_lora(case / "model", adapter=case / "adapter", output_dir=tmp_path / "out")


def test_configs_are_converted(fixtures, tmp_path):
    config = fixtures / "recipes/llama/config_only.hf-to-cs2.9/in/config.json"
    report = pystatelens.convert_config(config, "cs-2.9", output_dir=tmp_path)
    assert report["model"] == "llama" and report["recognised"]
    written = open(report["files"][0]).read()
    expected = next((config.parent.parent / "out").glob("*.yaml")).read_text()
    assert written == expected
    with pytest.raises(pystatelens.RefusedError):
        pystatelens.convert_config(config, "cs-0.1", output_dir=tmp_path)


def test_states_of_dataloaders_are_added(fixtures, tmp_path):
    source = fixtures / "cerebras/v2.10.0/gpt_small.mdl"
    states = fixtures / "cerebras/compat/dl_state"
    report = pystatelens.convert_dataloader_state(source, states, tmp_path / "new.mdl", seed=42)
    assert report["workers"] > 0 and report["step"] >= 0
    line = ("convert-dataloader-state", "--json", "-c", source, "-w", states, "-s", "42")
    expected = command(*line, "-o", tmp_path / "command.mdl")
    assert {**expected, "output": report["output"]} == report
    assert pystatelens.diff(tmp_path / "new.mdl", tmp_path / "command.mdl")["matches"]


def test_statistics_of_runs_are_kept_and_drawn(examples):
    for step in (100, 200):
        pystatelens.save({"model": {"w": np.full(100, step, "f4")}, "step": step}, f"run/checkpoint_{step}.mdl")
    report = pystatelens.runs("run", values=True, keep=True, picture="norms.svg")
    assert os.path.exists("run/statelens-values.json") and open("norms.svg").read().startswith("<svg")
    assert pystatelens.runs("run", values=True) == report
    with pytest.raises(pystatelens.ExistsError):
        pystatelens.runs("run", values=True, picture="norms.svg")
    pystatelens.runs("run", values=True, picture="norms.svg", replace=True)
