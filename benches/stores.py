"""Converts a checkpoint as a job into an object store of another project, with 1, 2 and 4 workers.

    python benches/stores.py STATELENS FOLDER s3      # needs moto[server] and boto3
    python benches/stores.py STATELENS FOLDER azure   # needs azure-storage-blob, and Azurite on port 10000

STATELENS is the command, built with `--features object-store`. Each output must be that of
`statelens convert`, byte for byte, and an aborted job must leave nothing. Prints the times.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

PORT = 5555
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
    """An object store, with functions of its own library."""

    def __init__(self, prefix, environment, put, get, left):
        self.prefix = prefix
        self.environment = {**os.environ, **environment}
        self.put, self.get, self.left = put, get, left


@contextlib.contextmanager
def moto():
    import boto3

    server = subprocess.Popen([Path(sys.executable).with_name("moto_server"), "-p", str(PORT)], stderr=subprocess.DEVNULL)
    environment = {
        "AWS_ENDPOINT": f"http://127.0.0.1:{PORT}",
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
        until(lambda: client.create_bucket(Bucket="bucket"))

        def left():
            names = [it["Key"] for it in client.list_objects_v2(Bucket="bucket").get("Contents", [])]
            return names, client.list_multipart_uploads(Bucket="bucket").get("Uploads", [])

        yield Store(
            "s3://bucket",
            environment,
            lambda name, data: client.put_object(Bucket="bucket", Key=name, Body=data),
            lambda name: client.get_object(Bucket="bucket", Key=name)["Body"].read(),
            left,
        )
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def azurite():
    from azure.storage.blob import BlobServiceClient

    # The account of the emulator, which its documentation names.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    service = BlobServiceClient("http://127.0.0.1:10000/devstoreaccount1", credential=key)
    container = service.get_container_client(f"bucket{os.getpid()}")
    until(container.create_container)
    yield Store(
        f"az://{container.container_name}",
        {"AZURE_STORAGE_USE_EMULATOR": "true"},
        lambda name, data: container.upload_blob(name, data, overwrite=True),
        lambda name: container.download_blob(name).readall(),
        lambda: ([it.name for it in container.list_blobs()], []),
    )
    container.delete_container()


def until(work):
    """Repeats work until the server answers."""
    for _ in range(100):
        with contextlib.suppress(Exception):
            return work()
        time.sleep(0.2)
    return work()


def checkpoint(path, tensors=16, rows=3_072):
    """Writes 200 MB of random numbers."""
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
    start = time.perf_counter()
    run("convert", remote, f"{store.prefix}/whole.{extension}", *CAST)
    print(f"{extension}: convert {time.perf_counter() - start:.1f} s", flush=True)
    assert store.get(f"whole.{extension}") == expected
    for workers in (1, 2, 4):
        job, name = f"{store.prefix}/job-{extension}-{workers}", f"out-{workers}.{extension}"
        planned = run("job", "plan", remote, f"{store.prefix}/{name}", "-o", job, "--tasks", TASKS, "--json", *CAST)
        tasks = json.loads(planned)["tasks"]
        start = time.perf_counter()
        work(statelens, store, job, workers, tasks)
        run("job", "commit", job)
        print(f"{extension}: {tasks} tasks, {workers} workers {time.perf_counter() - start:.1f} s", flush=True)
        assert store.get(name) == expected
    before = store.left()
    job = f"{store.prefix}/aborted"
    run("job", "plan", remote, f"{store.prefix}/never.{extension}", "-o", job, "--tasks", TASKS)
    run("job", "run", job, 1)
    run("job", "abort", job)
    assert store.left() == before, store.left()


def work(statelens, store, job, workers, tasks):
    """Runs all tasks, the last one first, with this number of processes at a time."""
    waiting, running = list(range(tasks)), []
    while waiting or running:
        while waiting and len(running) < workers:
            command = [statelens, "job", "run", job, str(waiting.pop())]
            running.append(subprocess.Popen(command, env=store.environment, stdout=subprocess.DEVNULL))
        ended = [process for process in running if process.poll() is not None]
        assert all(process.returncode == 0 for process in ended)
        running = [process for process in running if process not in ended]
        time.sleep(0.01)


if __name__ == "__main__":
    main()
