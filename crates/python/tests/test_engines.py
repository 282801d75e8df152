"""Runs the examples of docs/scale.md for Python engines, and compares their output with that of `convert`."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import psutil
import pystatelens
import pytest
from conftest import ROOT

TASKS = 64


def example(heading):
    """Returns the code below a heading, with the path of the job in the current folder."""
    text = (ROOT / "docs/scale.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)[1]
    code = "\n".join(line for line in section.splitlines() if not line or line.startswith("    "))
    assert "/shared/job" in code
    return textwrap.dedent(code).replace("/shared/job", os.path.abspath("job"))


@pytest.fixture
def expected(examples):
    """Plans a job that writes `out.pt`, and returns the expected bytes of this file."""
    numbers = np.arange(12_000_000, dtype="float32")
    pystatelens.save({"a": numbers[:5_000_000], "b": numbers[5_000_000:].reshape(1_000, 7_000)}, "in.safetensors")
    pystatelens.convert("in.safetensors", "expected.pt")
    assert pystatelens.job.plan("in.safetensors", "out.pt", "job", tasks=TASKS)["tasks"] == TASKS
    return (examples / "expected.pt").read_bytes()


def test_ray_runs_the_task_of_a_killed_worker_again(expected, examples, monkeypatch):
    import ray

    # Ray writes a token to the home directory.
    monkeypatch.setenv("HOME", str(examples))
    (examples / "run.py").write_text(example("Ray"))
    # Each task reserves two cores, so there are two workers.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        address = ray.get_runtime_context().gcs_address
        engine = subprocess.Popen([sys.executable, "run.py"], env={**os.environ, "RAY_ADDRESS": address})
        killed = False
        while engine.poll() is None and not killed:
            for process in psutil.Process().children(recursive=True):
                if not killed and title(process) == "ray::task":
                    process.send_signal(signal.SIGKILL)
                    killed = True
        assert engine.wait(300) == 0 and killed
    finally:
        ray.shutdown()
    assert (examples / "out.pt").read_bytes() == expected


def title(process):
    """Returns the title of a process, which Ray sets to the name of its task."""
    try:
        return "".join(process.cmdline()[:1])
    except psutil.Error:
        return ""


def test_datatrove_runs_a_task_in_each_rank(expected, examples):
    from datatrove.executor import LocalPipelineExecutor

    names = {"pystatelens": pystatelens}
    exec(example("datatrove"), names)
    LocalPipelineExecutor(names["pipeline"], tasks=TASKS, workers=1, logging_dir="logs").run()
    pystatelens.job.commit("job")
    assert (examples / "out.pt").read_bytes() == expected
