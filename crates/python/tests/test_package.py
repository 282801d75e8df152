"""Tests of the package: its command works, and its Rust sources have no unsafe code."""

import re
import subprocess
import sys
from pathlib import Path

import pystatelens
from conftest import ROOT

COMMAND = Path(sys.executable).with_name("statelens")


def run(*arguments, **options):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, **options)


def test_the_package_has_the_command(examples):
    assert run("--version").stdout.split() == ["statelens", pystatelens.__version__]
    listed = run("ls", "trainer.pt")
    assert listed.returncode == 0 and "model.norm" in listed.stdout
    assert run("nonsense").returncode == 2 and run("info", "missing.pt").returncode == 2
    assert run("diff", "trainer.pt", "model.safetensors").returncode == 1


def test_ctrl_c_ends_the_command(examples):
    """Checks that SIGINT ends the command while it reads a pipe, with the status that shells report."""
    import signal

    process = subprocess.Popen([COMMAND, "info", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr.readline().startswith(b"statelens: reading standard input")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) in (-signal.SIGINT, 130)
    process.stdin.close()
    process.stderr.close()


def test_sources_have_no_unsafe_code():
    sources = sorted((ROOT / "crates/python/src").rglob("*.rs"))
    assert len(sources) > 8
    for path in sources:
        code = re.sub(r"//.*", "", path.read_text())
        assert not re.search(r"\bunsafe\b", code), path.name
