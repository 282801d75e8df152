"""Tests of checkpoints on a server that fails, hangs, or sends more than is allowed."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pystatelens
import pytest

MEGABYTE = 1_000_000


@pytest.fixture
def weights(server):
    """The address of a checkpoint with six tensors of 4 MB."""
    arrays = {f"w{number}": np.full(MEGABYTE, number, "float32") for number in range(6)}
    pystatelens.save(arrays, "weights.safetensors")
    return f"{server.url}/weights.safetensors"


def test_a_failure_belongs_to_its_read(server, weights):
    checkpoint = pystatelens.open(weights)
    server.status = 503
    for key in ("w2", "w3"):
        with pytest.raises(pystatelens.IoError, match="503"):
            checkpoint[key].numpy()
    with pytest.raises(pystatelens.IoError, match="503"):
        pystatelens.verify(checkpoint)
    server.status = None
    for key in ("w2", "w5"):
        assert checkpoint[key].numpy()[-1] == int(key[1])
    assert pystatelens.verify(checkpoint)["sound"]


def test_a_file_that_changed_stays_an_error(server, weights):
    checkpoint = pystatelens.open(weights)
    server.tag = '"2"'
    for key in ("w2", "w2"):
        with pytest.raises(pystatelens.IoError, match="has changed since it was opened"):
            checkpoint[key].numpy()


def test_the_limit_on_fetching_holds_for_each_call(server, weights):
    checkpoint = pystatelens.open(weights, max_fetch=6 * MEGABYTE)
    for key in checkpoint:
        assert checkpoint[key].numpy()[0] == int(key[1])
        assert checkpoint[key][10:20].numpy()[0] == int(key[1])
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda key: checkpoint[key].numpy()[7], [*checkpoint] * 3))
    assert read == [*range(6)] * 3
    with pytest.raises(pystatelens.LimitError, match="Allow more with `max_fetch`") as caught:
        pystatelens.verify(checkpoint)
    assert caught.value.code == "fetch-cap" and "Opener" not in str(caught.value)
    assert checkpoint["w1"].numpy()[0] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda url, **options: pystatelens.verify(url, **options)["sound"],
        lambda url, **options: pystatelens.stats(url, **options)["tensors"],
        lambda url, **options: pystatelens.convert(url, "copy.npz", replace=True, **options)["files"],
        lambda url, **options: pystatelens.diff(url, url, **options)["matches"],
        lambda url, **options: pystatelens.summary(url, stats=True, **options),
    ],
)
def test_functions_take_a_limit_on_fetching(weights, call):
    with pytest.raises(pystatelens.LimitError, match="max_fetch"):
        call(weights, max_fetch=9 * MEGABYTE)
    assert call(weights, max_fetch="100MB")


INTERRUPTED = """
import os, signal, sys, threading
import pystatelens

checkpoint = pystatelens.open(sys.argv[1])
calls = {
    "open": lambda: pystatelens.open(sys.argv[1]),
    "numpy": lambda: checkpoint["w3"].numpy(),
    "verify": lambda: pystatelens.verify(checkpoint),
    "convert": lambda: pystatelens.convert(checkpoint, "out.pt"),
    "diff": lambda: pystatelens.diff(checkpoint, checkpoint),
}
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
sys.stdin.readline()
try:
    calls[sys.argv[2]]()
except Exception as error:
    print("lost", repr(error))
except KeyboardInterrupt:
    print("interrupted", os.listdir("."))
"""


@pytest.mark.parametrize("call", ["open", "numpy", "verify", "convert", "diff"])
def test_ctrl_c_stops_waiting_for_a_server(server, weights, call):
    command = [sys.executable, "-c", INTERRUPTED, weights, call]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        server.hangs, server.requests = True, 0
        process.stdin.write("\n")
        process.stdin.flush()
        assert server.hanging.wait(60)
        process.send_signal(2)
        printed = process.stdout.read()
    # After a time-out of 30 s, there would be a second request.
    assert printed.startswith("interrupted") and server.requests == 1, printed
    assert "out" not in printed.replace("interrupted", "")

