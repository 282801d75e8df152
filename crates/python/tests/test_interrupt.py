"""Tests of Ctrl-C during work that does not notice it by itself, and of worker threads."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pystatelens
import pytest
import torch
from conftest import FIXTURES

# Within this time, Ctrl-C is raised; on an idle machine, it takes a tenth of it.
MOST_SECONDS = 3

INTERRUPTED = """
import os, signal, sys, threading, time
import pystatelens

path, call = sys.argv[1:]
calls = {
    "open": lambda: pystatelens.open(path),
    "scan": lambda: pystatelens.scan(path),
    "info": lambda: pystatelens.info(path),
    "ls": lambda: pystatelens.ls(path),
    "summary": lambda: pystatelens.summary(path),
    "verify": lambda: pystatelens.verify(path),
    "stats": lambda: pystatelens.stats(path),
    "convert": lambda: pystatelens.convert(path, "out.pt", lossy=True, replace=True),
    "diff": lambda: pystatelens.diff(path, path),
    "manifest": lambda: pystatelens.manifest(path),
}
signal.signal(signal.SIGINT, signal.default_int_handler)
sent = []

def interrupt():
    time.sleep(0.3)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    while True:
        try:
            calls[call]()
        except pystatelens.StatelensError:
            pass
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - sent[0], os.listdir("."), flush=True)
"""


def interrupted(path, call):
    """Runs a call again and again until Ctrl-C; returns the seconds after which it was raised."""
    command = [sys.executable, "-c", INTERRUPTED, str(path), call]
    start = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    words = run.stdout.split()
    assert words[:2] == ["interrupted", "after"], (run.stdout, run.stderr)
    assert ".part" not in run.stdout
    print(call, path, words[2], "process", time.monotonic() - start)
    return float(words[2])


@pytest.fixture
def brackets(tmp_path):
    """A GGUF file whose chat template takes long to parse."""
    template = b"{{ " + b"(" * 40_000 + b"1" + b")" * 40_000 + b" }}"

    def text(data):
        return len(data).to_bytes(8, "little") + data

    header = b"GGUF" + (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    entry = text(b"tokenizer.chat_template") + (8).to_bytes(4, "little") + text(template)
    path = tmp_path / "brackets.gguf"
    path.write_bytes(header + entry)
    return path


@pytest.fixture
def expanded(tmp_path):
    """A small file with a tensor of 8 GB, all of whose elements are one."""
    path = tmp_path / "expanded.pt"
    torch.save({"w": torch.ones(1).expand(1 << 31)}, path)
    assert path.stat().st_size < 10_000
    return path


@pytest.mark.parametrize("call", ["open", "scan", "info", "ls", "summary", "verify", "convert"])
def test_ctrl_c_ends_calls_on_a_file_that_takes_long(brackets, call):
    assert interrupted(brackets, call) < MOST_SECONDS


@pytest.mark.parametrize("call", ["stats", "verify", "convert", "diff", "manifest"])
def test_ctrl_c_ends_calls_on_an_expanded_tensor(expanded, call):
    assert interrupted(expanded, call) < MOST_SECONDS


BOUND = sorted((FIXTURES / "attacks4/bound").glob("*")) if (FIXTURES / "attacks4/bound").exists() else []


@pytest.mark.parametrize("path", BOUND, ids=lambda path: path.name)
def test_ctrl_c_ends_scans(path, tmp_path):
    assert interrupted(path, "scan") < MOST_SECONDS


def test_progress_is_called_in_the_thread_of_the_caller():
    np.save("big.npy", np.zeros((16, 1 << 20), "float32"))
    threads = set()
    pystatelens.stats("big.npy", progress=lambda *_: threads.add(threading.get_ident()))
    pystatelens.verify("big.npy", progress=lambda *_: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


class Blocked:
    """A file object whose reads wait until the end of the test."""

    def __init__(self):
        self.begun, self.ended = threading.Event(), threading.Event()

    def seek(self, *_):
        return 0

    def tell(self):
        return 1 << 20

    def read(self, size):
        self.begun.set()
        self.ended.wait()
        return b""


def test_a_read_that_never_ends_is_left_alone():
    file = Blocked()

    def interrupt():
        file.begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pystatelens.open(file)
    assert time.monotonic() - start < MOST_SECONDS
    file.ended.set()
    thread.join()


def test_a_callback_stops_work_that_does_not_notice(expanded):
    start = time.monotonic()
    with pytest.raises(pystatelens.CancelledError):
        pystatelens.stats(expanded, progress=lambda *_: False)
    assert time.monotonic() - start < MOST_SECONDS
