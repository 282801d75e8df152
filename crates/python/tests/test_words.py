"""Tests of the words of exceptions: they name parameters and functions of Python, not options of the command."""

import re

import numpy as np
import pystatelens
import pytest
import torch
from conftest import ROOT
from test_reports import llama

COMMAND = re.compile(r"(?<![\w-])--[a-z]|`statelens |statelens [a-z]+ |::|Opener")


def words(error):
    return f"{error} {error.advice or ''} {error.what}"


def test_errors_of_all_functions_name_parameters(examples, fixtures, server):
    np.save("x.npy", np.ones(3))
    torch.save({"a.b": torch.ones(2), "a": {"b": torch.ones(2)}, "o": object}, "odd.pt")
    np.savez("blocks.npz", w=np.zeros(2, "V2"))
    model, target = llama(fixtures)
    calls = [
        lambda: pystatelens.convert("trainer.pt", "x.npy"),
        lambda: pystatelens.convert("trainer.pt", "x.pt", version="9"),
        lambda: pystatelens.convert("trainer.pt", "x.unknown"),
        lambda: pystatelens.convert("trainer.pt", "x.safetensors", states="nothing"),
        lambda: pystatelens.convert("trainer.pt", "x.safetensors", select="nothing"),
        lambda: pystatelens.convert("trainer.pt", "x.pt", compression="lz4"),
        lambda: pystatelens.convert("trainer.pt", "x.mdl", cast="int9"),
        lambda: pystatelens.convert("trainer.pt", "x.mdl", cast="float8_e4m3fn"),
        lambda: pystatelens.convert("trainer.pt", "x.mdl", shard_size="5GB"),
        lambda: pystatelens.convert("trainer.pt", "x.npz", object_graph=True),
        lambda: pystatelens.convert("trainer.pt", "x.pt", rename={"(": "x"}),
        lambda: pystatelens.convert("trainer.pt", "trainer.pt"),
        lambda: pystatelens.convert("odd.pt", "x.safetensors"),
        lambda: pystatelens.convert("odd.pt", "x.npz"),
        lambda: pystatelens.convert("blocks.npz", "x.safetensors"),
        lambda: pystatelens.convert("x.npy", in_place=True, cast="bfloat16"),
        lambda: pystatelens.convert_model(model, "nothing"),
        lambda: pystatelens.convert_model(model, target, src_fmt="nothing"),
        lambda: pystatelens.convert_model(model, target, model="nothing"),
        lambda: pystatelens.convert_model("trainer.pt", target),
        lambda: pystatelens.convert_model("x.npy", target),
        lambda: pystatelens.verify("trainer.pt", manifest={"no": 1}),
        lambda: pystatelens.diff("trainer.pt", "trainer.pt", select="nothing"),
        lambda: pystatelens.stats("trainer.pt", "/(/"),
        lambda: pystatelens.stats("trainer.pt", by="colour"),
        lambda: pystatelens.open("nothing.pt"),
        lambda: pystatelens.open(f"{server.url}/model.safetensors", max_fetch=10),
        lambda: pystatelens.open("x.npy", with_files="nothing.npz"),
        lambda: pystatelens.open("x.npy", read_as="nothing"),
        lambda: pystatelens.job.run("nothing", 0),
        lambda: pystatelens.job.commit("nothing"),
        lambda: pystatelens.job.plan("trainer.pt", "x.unknown", "job"),
        lambda: pystatelens.job.plan("trainer.pt", "x.safetensors", "job2", states="nothing"),
        lambda: pystatelens.job.plan_many("verify", "nothing-*", "job3"),
        lambda: pystatelens.merge(["trainer.pt"], "x.pt"),
        lambda: pystatelens.upgrade("trainer.pt"),
        lambda: pystatelens.fix_checkpoint_spec("trainer.pt"),
        lambda: pystatelens.prune(".", 1, delete=True),
        lambda: pystatelens.runs("."[:0] + "nothing"),
        lambda: pystatelens.singular(pystatelens.open("trainer.pt")["model.norm"]),
        lambda: pystatelens.picture(pystatelens.open("trainer.pt")["model.layers.0.weight"], "x.gif"),
        lambda: pystatelens.picture(pystatelens.open("trainer.pt")["model.layers.0.weight"], "x.png", width=16_000, height=16_000),
        lambda: pystatelens.tensor_diff("trainer.pt", "trainer.pt", "epoch"),
        lambda: pystatelens.open("trainer.pt").code("epoch", "nothing"),
        lambda: pystatelens.summary("trainer.pt", link="https://example.org/#x"),
        lambda: pystatelens.stats("trainer.pt", fail_on="nothing"),
        lambda: pystatelens.check("trainer.pt", "nothing.txt"),
        lambda: pystatelens.check("trainer.pt", fix_index=True),
        lambda: pystatelens.fold_lora("trainer.pt"),
        lambda: pystatelens.convert_config("nothing.yaml", "cs-2.9"),
        lambda: pystatelens.convert_config("trainer.pt", "nothing"),
        lambda: pystatelens.convert_dataloader_state("trainer.pt", ".", "x.mdl"),
        lambda: pystatelens.open("trainer.pt").dequantized("int8"),
    ]
    seen = 0
    for number, call in enumerate(calls):
        try:
            call()
        except (pystatelens.StatelensError, ValueError) as error:
            seen += 1
            if isinstance(error, pystatelens.StatelensError):
                assert not COMMAND.search(words(error)), (number, words(error))
    assert seen >= len(calls) - 6, seen


def sentences():
    """Yields texts in the sources of the core that name options or commands."""
    for path in sorted((ROOT / "crates").rglob("*.rs")):
        crate = path.relative_to(ROOT / "crates").parts[0]
        if crate in ("python", "fixtures", "serve") or "test" in path.name or "tests" in path.parts:
            continue
        for line in path.read_text().splitlines():
            if line.lstrip().startswith("//") or "#[arg" in line:
                continue
            for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                if re.search(r"(?<![\w-])--[a-z][a-z-]+", text) and " " in text:
                    yield text


def test_options_become_parameters():
    translated = pystatelens._native.in_python
    assert translated("Choose one with --select.") == "Choose one with `select`."
    assert translated("Leave `--format-version` out, or --format-version 0.4") == "Leave `version` out, or `version` 0.4"
    assert translated("replace it with --force") == "replace it with `replace=True`"
    assert translated("List the keys with `statelens ls`.") == "List the keys with `pystatelens.ls`."
    assert translated("`statelens convert FILE OUT --lossy` writes it.") == "`pystatelens.convert` writes it."
    assert translated("`statelens fix-checkpoint-spec` does.") == "`pystatelens.fix_checkpoint_spec` does."
    assert translated("`statelens job abort` removes it") == "`pystatelens.job.abort` removes it"
    for unchanged in ["models--a--b/blobs/x", "a -- b", "`--unknown`", "use pystatelens ls", "é--à", "--", ""]:
        assert translated(unchanged) == unchanged
    known = [text for text in sentences() if translated(text) != text]
    assert len(known) > 5


def test_functions_that_advice_names_exist():
    """Each command that an error of the core names has a function of this name."""
    names = set()
    for path in sorted((ROOT / "crates").rglob("*.rs")):
        parts = path.relative_to(ROOT / "crates").parts
        if parts[0] not in ("python", "cli") and "tests" not in parts:
            code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("//"))
            names |= set(re.findall(r"`statelens ((?:job )?[a-z-]+)", code))
    assert names
    for name in sorted(names - {"serve", "open", "man", "completions", "show", "export"}):
        value = pystatelens
        for part in name.replace("-", "_").split():
            value = getattr(value, part, None)
        assert value is not None, name
