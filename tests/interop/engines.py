"""Runs a job on Ray with two workers, one of which is killed, and as a step of datatrove.

The output must be that of `statelens convert`, byte for byte.
"""

import argparse
import filecmp
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy
import ray
from safetensors.numpy import save_file

TASKS = 6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--statelens", required=True)
    parser.add_argument("--work", required=True)
    options = parser.parse_args()
    work = pathlib.Path(options.work).resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # Ray keeps a token there.
    os.environ["HOME"] = str(work)
    statelens = str(pathlib.Path(options.statelens).resolve())
    source = work / "source.safetensors"
    numbers = numpy.arange(12_000_000, dtype=numpy.float32)
    save_file({"a": numbers[:5_000_000], "b": numbers[5_000_000:].reshape(1_000, 7_000)}, source)
    expected = work / "expected.pt"
    subprocess.run([statelens, "convert", source, expected], check=True, stdout=subprocess.DEVNULL)
    on_ray(statelens, work, source, expected)
    if "datatrove" in installed():
        as_datatrove_step(statelens, work, source, expected)
    print(f"ok: {TASKS} tasks on two workers of Ray, one of which was killed")


def installed():
    import importlib.util

    return [name for name in ["datatrove"] if importlib.util.find_spec(name)]


def plan(statelens, work, source, name):
    out, job = work / f"{name}.pt", work / f"{name}-job"
    command = [statelens, "job", "plan", source, out, "-o", job, "--tasks", str(TASKS), "--json"]
    recipe = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert recipe["tasks"] == TASKS, recipe
    return out, job, recipe["outputs"][0]["temporary"]


def on_ray(statelens, work, source, expected):
    out, job, temporary = plan(statelens, work, source, "ray")
    killed = work / "killed"

    @ray.remote(num_cpus=1, max_retries=3, retry_exceptions=[OSError])
    def task(index):
        command = [statelens, "job", "run", str(job), str(index)]
        if index == 2 and not killed.exists():
            killed.write_text(str(os.getpid()))
            before = os.stat(temporary).st_mtime_ns
            child = subprocess.Popen(command)
            while child.poll() is None and os.stat(temporary).st_mtime_ns == before:
                time.sleep(0.000_1)
            child.kill()
            os.kill(os.getpid(), signal.SIGKILL)
        status = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
        if status > 1 or status < 0:
            raise OSError(f"task {index}: try again")
        return status, os.getpid()

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ended = ray.get([task.remote(index) for index in range(TASKS)])
    ray.shutdown()
    assert all(status == 0 for status, _ in ended), ended
    assert int(killed.read_text()) != ended[2][1], "the task was not run again by another worker"
    subprocess.run([statelens, "job", "commit", job], check=True, stdout=subprocess.DEVNULL)
    assert filecmp.cmp(out, expected, shallow=False), "the output differs"


def as_datatrove_step(statelens, work, source, expected):
    from datatrove.executor import LocalPipelineExecutor

    out, job, _ = plan(statelens, work, source, "datatrove")

    def step(data, rank, world_size):
        subprocess.run([statelens, "job", "run", str(job), str(rank)], check=True)
        return data

    LocalPipelineExecutor(
        pipeline=[step], tasks=TASKS, workers=1, logging_dir=str(work / "logs")
    ).run()
    subprocess.run([statelens, "job", "commit", job], check=True, stdout=subprocess.DEVNULL)
    assert filecmp.cmp(out, expected, shallow=False), "the output differs"


if __name__ == "__main__":
    sys.exit(main())
