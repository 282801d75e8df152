"""Tests of views in notebooks, without a browser: `tests/page/notebook.mjs` shows them in JupyterLab."""

import builtins
import gzip
import json
import subprocess
import sys

import numpy as np
import pystatelens
import pytest
from conftest import write_safetensors
from pystatelens import _view


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "statelens.html"
    path.write_text("<!doctype html>")
    return path


@pytest.fixture
def shown(page):
    """Returns a function that makes a view whose messages to the browser are kept, with these messages."""
    pytest.importorskip("anywidget")

    def show(source):
        view = pystatelens.view(source, page=page)
        sent = []
        view.send = lambda content, buffers=None: sent.append((content, buffers))
        return view, sent

    return show


def ask(view, **request):
    view._handle_custom_msg(request, [])


def test_the_package_does_not_import_anywidget():
    code = "import sys, pystatelens; sys.exit('anywidget' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_says_what_to_install(monkeypatch, page):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "anywidget":
            raise ImportError(name)
        return real(name, *rest)

    _view._widget.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "pystatelens\[notebook\]"'):
        pystatelens.view("model.safetensors", page=page)
    _view._widget.cache_clear()


def test_says_how_to_get_the_page(monkeypatch):
    pytest.importorskip("anywidget")
    monkeypatch.setattr(_view._native, "page", lambda: None)
    with pytest.raises(pystatelens.RefusedError, match=r"cargo xtask dist"):
        pystatelens.view("model.safetensors")


def test_the_page_of_the_package_is_used_unless_another_is_named(monkeypatch, page):
    pytest.importorskip("anywidget")
    monkeypatch.setattr(_view._native, "page", lambda: b"<!doctype html><p>")
    for given, content in ((None, b"<!doctype html><p>"), (page, b"<!doctype html>")):
        view = pystatelens.view("model.safetensors", page=given)
        assert gzip.decompress(view._page) == content


def test_answers_reads_with_the_bytes_of_the_file(shown, examples):
    view, sent = shown("model.safetensors")
    content = (examples / "model.safetensors").read_bytes()
    assert view._files == [{"name": "model.safetensors", "size": len(content)}] and view._main == 0
    ask(view, type="read", id="x-1", file=0, offset=3, length=20)
    assert sent.pop() == ({"type": "bytes", "id": "x-1"}, [content[3:23]])
    ask(view, type="page", id="x-2")
    (about, (page,)) = sent.pop()
    assert about == {"type": "page", "id": "x-2"} and gzip.decompress(page) == b"<!doctype html>"


def test_a_hosted_page_is_loaded_by_the_browser():
    pytest.importorskip("anywidget")
    view = pystatelens.view("model.safetensors", page="https://example.org/statelens/")
    assert view._address == "https://example.org/statelens/"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"file": 0, "offset": 1 << 40, "length": 4}, "the file ends"),
        ({"file": 9, "offset": 0, "length": 4}, "index"),
        ({"file": 0, "offset": -1, "length": 4}, "negative"),
        ({"file": 0, "offset": 0, "length": 1 << 40}, "bytes"),
        ({"offset": 0, "length": 4}, "file"),
    ],
)
def test_answers_bad_reads_with_an_error(shown, request_, message):
    view, sent = shown("model.safetensors")
    ask(view, type="read", id="x-1", **request_)
    about, buffers = sent.pop()
    assert about["type"] == "error" and about["id"] == "x-1" and buffers is None
    assert message in about["message"]


def test_offers_all_files_of_a_set(shown, fixtures):
    folder = fixtures / "cerebras/v2.10.0"
    view, _ = shown(folder / "gpt_small.mdl")
    # Other checkpoints in the folder are not a part of it.
    assert [file["name"] for file in view._files if not file["name"].endswith(".json")] == ["gpt_small.mdl"]


def test_the_selected_key_gives_the_tensor(shown):
    checkpoint = pystatelens.open("trainer.pt")
    view, _ = shown(checkpoint)
    assert view.selected is None and view.tensor is None and view.checkpoint is checkpoint
    view.set_state({"selected": "model.norm"})
    assert view.tensor.key == "model.norm" and view.tensor.shape == (6,)
    view.set_state({"selected": "epoch"})
    assert view.selected == "epoch" and view.tensor is None
    view.close()


def test_a_state_dict_in_memory_has_no_file(page):
    pytest.importorskip("anywidget")
    with pytest.raises(pystatelens.RefusedError, match="not in a file"):
        pystatelens.view({"a": 1}, page=page)


def test_offers_the_shards_and_the_index_of_a_folder(shown, tmp_path):
    folder = tmp_path / "sharded"
    folder.mkdir()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for number, name in enumerate(names):
        write_safetensors(folder / name, {f"layer.{number}": np.full(3, number, "float32")})
    index = {"weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    (folder / "readme.md").write_text("# A model")
    view, sent = shown(folder)
    offered = [file["name"] for file in view._files]
    assert sorted(offered) == ["config.json", *names, "model.safetensors.index.json"]
    at = offered.index(names[1])
    ask(view, type="read", id="x-1", file=at, offset=view._files[at]["size"] - 12, length=12)
    assert sent.pop()[1] == [np.full(3, 1, "float32").tobytes()]
    view.set_state({"selected": "layer.1"})
    assert view.tensor.numpy().tolist() == [1, 1, 1]
