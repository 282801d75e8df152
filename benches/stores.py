"""Converts a checkpoint as a job into an emulated object store, with 1, 2 and 4 workers.

    python benches/stores.py STATELENS FOLDER s3      # needs moto[server] and boto3
    python benches/stores.py STATELENS FOLDER azure   # needs azure-storage-blob, and Azurite on port 10000

STATELENS is the command, built with `--features object-store`. Each output must have the same bytes as the output of
`statelens convert`, even if tasks are killed, and an aborted job must leave nothing in the store. Prints the wall time,
and the CPU time of the workers without the server.
"""

import contextlib
import json
import os
import random
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

TASKS = 8
CAST = ["--cast", "layers.1*=bfloat16", "--lossy"]


def main():
    statelens, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    source = checkpoint(folder / "source.safetensors")
    with {"s3": moto, "azure": azurite}[sys.argv[3]]() as store:
        store.put("source.safetensors", source.read_bytes())
        for extension in ("safetensors", "pt"):
            convert(statelens, folder, store, source, extension)


class Store:
    """An object store. `put`, `get` and `contents` use the store's own client library."""

    def __init__(self, prefix, environment, put, get, contents):
        self.prefix = prefix
        self.environment = {**os.environ, **environment}
        self.put, self.get, self.contents = put, get, contents


@contextlib.contextmanager
def moto():
    import boto3

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([Path(sys.executable).with_name("moto_server"), "-p", str(port)], stderr=subprocess.DEVNULL)
    environment = {
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    try:
        retry(lambda: client.create_bucket(Bucket="bucket"))

        def contents():
            names = [it["Key"] for it in client.list_objects_v2(Bucket="bucket").get("Contents", [])]
            return names, client.list_multipart_uploads(Bucket="bucket").get("Uploads", [])

        yield Store(
            "s3://bucket",
            environment,
            lambda name, data: client.put_object(Bucket="bucket", Key=name, Body=data),
            lambda name: client.get_object(Bucket="bucket", Key=name)["Body"].read(),
            contents,
        )
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def azurite():
    from azure.storage.blob import BlobServiceClient

    # The public account of the emulator, from its documentation.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    service = BlobServiceClient("http://127.0.0.1:10000/devstoreaccount1", credential=key)
    container = service.get_container_client(f"bucket{os.getpid()}")
    retry(container.create_container)
    yield Store(
        f"az://{container.container_name}",
        {"AZURE_STORAGE_USE_EMULATOR": "true"},
        lambda name, data: container.upload_blob(name, data, overwrite=True),
        lambda name: container.download_blob(name).readall(),
        lambda: ([it.name for it in container.list_blobs()], []),
    )
    container.delete_container()


def retry(work):
    """Repeats `work` until the server responds."""
    for _ in range(100):
        with contextlib.suppress(Exception):
            return work()
        time.sleep(0.2)
    return work()


def checkpoint(path, tensors=16, rows=3_072):
    """Returns a file of 200 MB of random bytes as float32, and writes it if it is missing."""
    if not path.exists():
        header, size = {}, rows * 4_096
        for i in range(tensors):
            span = [i * size, (i + 1) * size]
            header[f"layers.{i}.weight"] = {"dtype": "F32", "shape": [rows, 1024], "data_offsets": span}
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + random.Random(1).randbytes(tensors * size))
    return path


def convert(statelens, folder, store, source, extension):
    def run(*arguments):
        command = [statelens, *map(str, arguments)]
        return subprocess.run(command, check=True, env=store.environment, stdout=subprocess.PIPE).stdout

    expected = folder / f"expected.{extension}"
    expected.unlink(missing_ok=True)
    run("convert", source, expected, *CAST)
    expected = expected.read_bytes()
    remote = f"{store.prefix}/source.safetensors"
    with timed(f"{extension}: convert"):
        run("convert", remote, f"{store.prefix}/whole.{extension}", *CAST)
    assert store.get(f"whole.{extension}") == expected

    def plan(job, name):
        arguments = [remote, f"{store.prefix}/{name}", "-o", job, "--tasks", TASKS, "--json", *CAST]
        return json.loads(run("job", "plan", *arguments))["tasks"]

    for workers, killed in ((1, 0), (2, 0), (4, 0), (2, 3)):
        job, name = f"{store.prefix}/job-{extension}-{workers}-{killed}", f"out-{workers}-{killed}.{extension}"
        tasks = plan(job, name)
        note = f", {killed} of them killed once" if killed else ""
        with timed(f"{extension}: {tasks} tasks{note}, {workers} workers"):
            work(statelens, store, job, workers, tasks, killed)
            run("job", "commit", job)
        assert store.get(name) == expected
        run("job", "abort", job)
        assert store.get(name) == expected
    before = store.contents()
    job = f"{store.prefix}/aborted"
    plan(job, f"never.{extension}")
    run("job", "run", job, 1)
    kill_soon(start(statelens, store, job, 0))
    assert store.contents() != before
    run("job", "abort", job)
    assert store.contents() == before, store.contents()


@contextlib.contextmanager
def timed(name):
    def cpu_time():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    wall, cpu = time.perf_counter(), cpu_time()
    yield
    print(f"{name} {time.perf_counter() - wall:.1f} s, {cpu_time() - cpu:.1f} s of CPU time", flush=True)


def work(statelens, store, job, workers, tasks, killed):
    """Runs all tasks, the last one first, in up to `workers` processes at a time. Kills the first `killed` processes at
    a random time, and runs their tasks again."""
    waiting, running, ends = list(range(tasks)), [], []
    while waiting or running:
        while waiting and len(running) < workers:
            task = waiting.pop()
            process = start(statelens, store, job, task)
            if len(ends) < killed:
                ends.append(kill_soon(process))
                waiting.append(task)
            else:
                running.append(process)
        ended = [process for process in running if process.poll() is not None]
        assert all(process.returncode == 0 for process in ended)
        running = [process for process in running if process not in ended]
        time.sleep(0.01)
    if killed:
        print(f"exit status of the killed processes: {ends}", flush=True)


def start(statelens, store, job, task):
    command = [statelens, "job", "run", job, str(task)]
    return subprocess.Popen(command, env=store.environment, stdout=subprocess.DEVNULL)


def kill_soon(process):
    """Kills a process at a random time within half a second, and returns its exit status."""
    time.sleep(random.random() / 2)
    process.kill()
    return process.wait()


if __name__ == "__main__":
    main()
