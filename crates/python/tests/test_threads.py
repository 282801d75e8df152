"""Tests of reading in several threads and in asyncio."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pystatelens
import pytest


@pytest.fixture
def many(tmp_path):
    """A file with 40 tensors, each full of its number."""
    np.savez("many.npz", **{f"w{number}": np.full(50_000, number) for number in range(40)})
    return "many.npz"


def test_threads_share_a_checkpoint_and_a_tensor(many):
    checkpoint = pystatelens.open(many)
    tensor = checkpoint["w7"]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda key: int(checkpoint[key].numpy().max()), checkpoint))
        same = list(pool.map(lambda at: int(tensor[at].item()), range(100)))
        reports = list(pool.map(lambda _: pystatelens.verify(checkpoint)["sound"], range(4)))
    assert read == list(range(40)) and same == [7] * 100 and reports == [True] * 4


def test_asyncio_runs_other_tasks_meanwhile(many):
    async def main():
        ticks = 0
        checkpoint = await asyncio.to_thread(pystatelens.open, many)

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        tensors = dict(checkpoint.tensors())
        arrays = await asyncio.gather(*(asyncio.to_thread(tensor.numpy) for tensor in tensors.values()))
        report = await asyncio.to_thread(pystatelens.stats, checkpoint)
        ticking.cancel()
        return ticks, [int(array[0]) for array in arrays], len(report["tensors"])

    ticks, values, measured = asyncio.run(main())
    assert values == list(range(40)) and measured == 40 and ticks > 1


def test_an_event_stops_work_in_another_thread():
    np.save("big.npy", np.zeros((64, 1 << 20), "float32"))
    stopped = threading.Event()

    async def main():
        work = asyncio.create_task(
            asyncio.to_thread(pystatelens.verify, "big.npy", progress=lambda *_: not stopped.is_set())
        )
        await asyncio.sleep(0)
        stopped.set()
        with pytest.raises(pystatelens.CancelledError):
            await work

    asyncio.run(main())


def test_exceptions_of_a_thread_belong_to_its_call(many):
    checkpoint = pystatelens.open(many)

    def read(key):
        try:
            return checkpoint[key].numpy()[0]
        except KeyError:
            return None

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, ["w1", "nothing", "w2", "none"])) == [1, None, 2, None]
