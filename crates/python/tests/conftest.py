"""Pytest fixtures: the folder of test files, and small checkpoints for the examples."""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from server import running

ROOT = Path(__file__).parents[3]
FIXTURES = Path(os.environ.get("STATELENS_FIXTURES", ROOT / "target/fixtures"))
# The interop tests have `describe`, which describes loaded values as JSON.
sys.path.insert(0, str(ROOT / "tests/interop"))
# A shell starts background processes with SIGINT ignored, but some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def write_safetensors(path, arrays):
    header, at = {}, 0
    for key, array in arrays.items():
        span = [at, at := at + array.nbytes]
        header[key] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
    text = json.dumps(header).encode()
    # Data begin at a multiple of 8, as the library writes it.
    text += b" " * (-len(text) % 8)
    data = b"".join(array.tobytes() for array in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture(autouse=True)
def examples(tmp_path, monkeypatch):
    """Runs each test, and each example of the documents, in a folder with two checkpoints."""
    weight = np.arange(24, dtype="float32").reshape(4, 6)
    write_safetensors(
        tmp_path / "model.safetensors", {"layers.0.weight": weight, "norm": np.ones(6, "float32")}
    )
    state = {"model": {"layers": {"0": {"weight": weight}}, "norm": np.ones(6, "float32")}, "epoch": 3}
    monkeypatch.chdir(tmp_path)
    _trainer(tmp_path / "trainer.pt", state)
    return tmp_path


def _trainer(path, state):
    import torch

    def tensors(value):
        if isinstance(value, dict):
            return {key: tensors(item) for key, item in value.items()}
        return torch.from_numpy(value) if isinstance(value, np.ndarray) else value

    torch.save(tensors(state), path)


@pytest.fixture
def fixtures():
    return FIXTURES


@pytest.fixture
def server(examples):
    """A server of the files in the folder of the test."""
    with running() as server:
        yield server
