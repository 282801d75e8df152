"""Tests of jobs: the output equals that of `convert`, for any order of the tasks."""

import itertools
import multiprocessing
import os
import threading

import numpy as np
import pystatelens
import pytest
from pystatelens import job


def large(tmp_path):
    """Writes a checkpoint of 24 MB, and the output of `convert` for it."""
    random = np.random.default_rng(1)
    arrays = {f"layers.{i}.weight": random.random((500, 1_000), "float32") for i in range(12)}
    pystatelens.save(arrays, "large.npz")
    pystatelens.convert("large.npz", "expected.pt", cast={"layers.1*": "bfloat16"})
    return tmp_path


def plan(name="out.pt", tasks=5):
    return job.plan("large.npz", name, "job", tasks=tasks, cast={"layers.1*": "bfloat16"})


def test_tasks_in_any_order_write_the_output_of_convert(tmp_path):
    large(tmp_path)
    tasks = plan()["tasks"]
    assert tasks == 5
    with pytest.raises(pystatelens.IoError) as missing:
        job.commit("job")
    assert missing.value.code == "results-missing"
    for index in [3, 0, 3, 4, 2]:
        [(task, done_before)] = job.run("job", index)
        assert task == index
    assert job.status("job")["missing"] == [1] and done_before is False
    assert job.run("job", 0, per=tasks) == [(task, task != 1) for task in range(tasks)]
    report = job.commit("job")
    assert report["files"] == [str(tmp_path / "out.pt")]
    assert report["cast"]["pairs"][0]["to"] == "bfloat16"
    assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "expected.pt").read_bytes()
    # It may be repeated, and then returns the same.
    assert job.commit("job") == report | {"committed_before": True} and job.status("job")["committed"]


def test_worker_processes_share_a_job(tmp_path):
    large(tmp_path)
    tasks = plan()["tasks"]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        ends = pool.starmap(job.run, [("job", index) for index in range(tasks)])
    assert list(itertools.chain(*ends)) == [(index, False) for index in range(tasks)]
    job.commit("job")
    assert (tmp_path / "out.pt").read_bytes() == (tmp_path / "expected.pt").read_bytes()


def test_threads_of_one_process_run_different_jobs(examples):
    """Checks that the options of a job do not affect another job in the same process."""
    job.plan_many("verify", ["trainer.pt"], "one", finite=True)
    job.plan_many("scan", ["trainer.pt"], "two", allow=["a.b"])
    threads = [threading.Thread(target=job.run, args=(name, 0)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert job.commit("one")["command"] == "verify" and job.commit("two")["command"] == "scan"


def test_the_task_number_comes_from_the_engine(examples, monkeypatch):
    job.plan_many("manifest", ["trainer.pt", "model.safetensors"], "job", tasks=2)
    with pytest.raises(pystatelens.RefusedError, match="SLURM_ARRAY_TASK_ID"):
        job.run("job")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    assert job.run("job") == [(1, False)]
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    with pytest.raises(pystatelens.RefusedError, match="there is no task 2"):
        job.run("job")


def test_a_changed_source_is_refused_and_abort_leaves_nothing(examples):
    before = sorted(os.listdir())
    job.plan("trainer.pt", "out.safetensors", "job", states="model")
    with open("trainer.pt", "ab") as file:
        file.write(b"\0")
    with pytest.raises(pystatelens.StatelensError) as caught:
        job.run("job", 0)
    assert not isinstance(caught.value, (pystatelens.IoError, pystatelens.LimitError))
    assert job.status("job")["failed"][0]["task"] == 0
    job.abort("job")
    assert sorted(os.listdir()) == before
    with pytest.raises(pystatelens.RefusedError) as gone:
        job.status("job")
    assert gone.value.code == "no-job"


def test_losses_are_refused(examples):
    with pytest.raises(pystatelens.RefusedError) as caught:
        job.plan("trainer.pt", "out.npz", "job", cast="float8_e4m3fn")
    assert caught.value.code == "lossy" and not os.path.exists("job")
    with pytest.raises(TypeError, match="'selekt'"):
        job.plan("trainer.pt", "out.npz", "job", selekt="*")


def test_damaged_files_are_reported_separately(examples):
    data = (examples / "trainer.pt").read_bytes()
    (examples / "short.pt").write_bytes(data[: len(data) // 2])
    job.plan_many("verify", ["*.pt", "model.safetensors"], "job")
    job.run("job", 0)
    report = job.commit("job")
    assert (report["passed"], report["failed"], report["unread"]) == (2, 1, 0)
    [bad] = [one for one in report["checkpoints"] if not one["passes"]]
    assert bad["path"].endswith("short.pt") and bad["report"]["problems"]


def test_progress_stops_a_task(tmp_path):
    large(tmp_path)
    plan()

    def stop(done, total):
        return False

    with pytest.raises(pystatelens.CancelledError):
        for index in range(5):
            job.run("job", index, progress=stop)
    assert job.status("job")["missing"]


def test_a_second_commit_returns_the_same_report(examples):
    pystatelens.job.plan("trainer.pt", "twice.npz", "job", tasks=2, states="model", cast="float16", lossy=True)
    for index in range(2):
        pystatelens.job.run("job", index)
    first = pystatelens.job.commit("job")
    again = pystatelens.job.commit("job")
    assert first["bytes"] > 0 and first["cast"] and not first["committed_before"]
    assert again == {**first, "committed_before": True}
