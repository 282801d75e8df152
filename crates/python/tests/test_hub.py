"""Tests of repositories of the Hugging Face Hub, which two servers imitate."""

import json
import os
import pickle
from pathlib import Path

import hub as servers
import numpy as np
import pystatelens
import pytest
from conftest import write_safetensors
from hub import COMMIT, TOKEN, blob_id, sha256

REPOSITORY = "hf://org/tiny"


@pytest.fixture
def hub(examples, monkeypatch):
    """The Hub with a model of two shards, for a user without a token and a cache."""
    folder = Path("tiny")
    folder.mkdir()
    map_ = {}
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        # Larger than what opening reads at once.
        arrays = {f"layers.{number}.weight": np.full((300, 1000), number, "float32")}
        write_safetensors(folder / name, arrays)
        map_ |= dict.fromkeys(arrays, name)
    index = {"metadata": {"total_size": 2 * 1_200_000}, "weight_map": map_}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "README.md").write_text("# Tiny\n")
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING_FACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(examples / "home"))
    with servers.running({path.name: path.read_bytes() for path in folder.iterdir()}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
        # Whatever a test does, no token reaches the storage or is in an address.
        assert all(not token for _, token, _ in hub.storage.requests)
        assert all(TOKEN not in path for path, _, _ in hub.requests + hub.storage.requests)


def cache(hub, names):
    """Puts files into the cache, as the official client does. Returns the folder of the repository."""
    folder = Path(os.environ["HF_HOME"]) / "hub/models--org--tiny"
    snapshot = folder / "snapshots" / COMMIT
    for part in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "refs/main").write_text(COMMIT)
    for name in names:
        data = hub.files[name]
        blob = folder / "blobs" / (sha256(data) if servers.is_large(name) else blob_id(data))
        blob.write_bytes(data)
        (snapshot / name).symlink_to(blob)
    return folder


def test_a_repository_is_one_checkpoint_at_one_commit(hub):
    checkpoint = pystatelens.open(REPOSITORY)
    assert sorted(checkpoint) == ["layers.1.weight", "layers.2.weight"]
    assert checkpoint["layers.2.weight"].numpy()[299, 999] == 2
    facts = pystatelens.info(REPOSITORY)["format"]["facts"]
    assert facts["Repository"] == "org/tiny"
    assert facts["Commit"] == COMMIT
    resolved = [(path, range_) for path, _, range_ in hub.requests if "/resolve/" in path]
    assert resolved
    assert all(COMMIT in path and not range_ for path, range_ in resolved)
    assert any(range_ for _, _, range_ in hub.storage.requests)
    # The page of a shard leads to its set.
    page = pystatelens.open(f"{hub.url}/org/tiny/blob/main/model-00001-of-00002.safetensors")
    assert sorted(page) == sorted(checkpoint)


def test_remote_files_are_verified_and_checked(hub):
    report = pystatelens.verify(REPOSITORY)
    assert report["sound"]
    folder = pystatelens.check(REPOSITORY)
    assert folder["whole"], folder
    name = "model-00002-of-00002.safetensors"
    del hub.files[name]
    # A new list of files: the previous one is kept for some seconds.
    folder = pystatelens.check(f"{REPOSITORY}@{COMMIT}")
    assert not folder["whole"]
    missing = [one for one in folder["findings"] if one["rule"] == "shard-missing"]
    assert name in missing[0]["text"] + missing[0]["file"], missing


def test_the_cache_is_read_and_verified_but_never_written(hub):
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    folder = cache(hub, [first, "model.safetensors.index.json"])
    before = sorted(str(path) for path in folder.rglob("*"))
    checkpoint = pystatelens.open(REPOSITORY)
    assert checkpoint["layers.1.weight"].numpy()[0, 0] == 1
    assert not any(first in path for path, _, _ in hub.storage.requests), "it is in the cache"
    assert checkpoint["layers.2.weight"].numpy()[0, 0] == 2
    assert any(second in path for path, _, _ in hub.storage.requests)
    assert pystatelens.verify(REPOSITORY)["sound"]
    assert sorted(str(path) for path in folder.rglob("*")) == before
    # A byte of a value: only the name of the blob shows it.
    blob = folder / "blobs" / sha256(hub.files[first])
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    report = pystatelens.verify(REPOSITORY)
    assert not report["sound"]
    assert first in json.dumps(report) or blob.name in json.dumps(report)


def test_a_token_goes_to_the_hub_only_and_is_not_shown(hub, monkeypatch):
    hub.private = True
    with pytest.raises(pystatelens.StatelensError, match="no public repository org/tiny") as caught:
        pystatelens.open(REPOSITORY)
    assert caught.value.code == "hub-not-found"
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    checkpoint = pystatelens.open(REPOSITORY)
    assert checkpoint["layers.1.weight"].numpy()[1, 1] == 1
    assert any(token == TOKEN for _, token, _ in hub.requests)
    shown = [repr(checkpoint), json.dumps(pystatelens.info(REPOSITORY)), pickle.dumps(checkpoint).decode("latin1")]
    assert not any(TOKEN in text for text in shown)
    monkeypatch.setenv("HF_TOKEN", TOKEN + "x")
    with pytest.raises(pystatelens.StatelensError, match="does not accept the token") as caught:
        pystatelens.open(f"{REPOSITORY}@{COMMIT}")
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "address", "sentence", "code"),
    [
        ("gated", REPOSITORY, "org/tiny is gated", "hub-gated"),
        ("limited", REPOSITORY, "too many requests.*3600 s", "hub-rate-limit"),
        (None, f"{REPOSITORY}@v9", "no branch, tag or commit `v9`", "hub-not-found"),
        (None, f"{REPOSITORY}/no.safetensors", "no file `no.safetensors`", "hub-not-found"),
        (None, "hf://org/none", "no public repository org/none", "hub-not-found"),
    ],
)
def test_each_refusal_has_a_sentence(hub, state, address, sentence, code):
    if state:
        setattr(hub, state, True)
    with pytest.raises(pystatelens.StatelensError, match=f"(?s){sentence}") as caught:
        pystatelens.open(address)
    assert caught.value.code == code


def test_without_a_connection_the_cache_is_used(hub, monkeypatch):
    cache(hub, [name for name in hub.files if name != "README.md"])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checkpoint = pystatelens.open(REPOSITORY)
    assert checkpoint["layers.2.weight"].numpy()[2, 2] == 2
    assert hub.requests == []
