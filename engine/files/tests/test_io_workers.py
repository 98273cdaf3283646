"""Both pools: they keep the order of a worker, return results and errors, and cannot be cancelled half-way."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from engine.files.filesystem import PosixFileSystem
from engine.files.io_workers import SWITCH_INTERVAL_S, LoopPool, ThreadPool
from engine.files.kernel_sync import KernelSyncs
from engine.testing.simulated_delays import DiskDelays
from engine.testing.simulated_disk import SimulatedFileSystem, SimulatedPool


@pytest.fixture(autouse=True)
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def thread_name() -> str:
    return threading.current_thread().name


def fail() -> None:
    raise OSError(5, "no luck")


async def test_thread_pool() -> None:
    pool = ThreadPool()
    try:
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
        assert [await pool.run(worker, thread_name) for worker in (0, 1, 0)] == ["io-0", "io-1", "io-0"]
        with pytest.raises(OSError, match="no luck"):
            await pool.run(0, fail)
        with trio.CancelScope() as scope:
            scope.cancel()
            assert await pool.run(1, thread_name) == "io-1"
    finally:
        pool.close()


async def test_a_thread_that_waits_holds_nothing_of_its_last_job() -> None:
    class Large:
        """Data that a job gets, and returns."""

    pool = ThreadPool()
    try:
        one = Large()
        gone = weakref.ref(one)
        assert await pool.run(0, lambda given=one: given) is one  # type: ignore[misc]
        del one
        await pool.run(1, thread_name)
        for _ in range(1000):  # its thread may still be on the way to the next
            if gone() is None:
                break
            time.sleep(0.005)  # noqa: ASYNC251 (the clock of these tests gives a thread no time)
            await trio.lowlevel.checkpoint()
        assert gone() is None
    finally:
        pool.close()


async def test_an_error_of_a_job_leaves_no_reference_cycle_to_its_arguments() -> None:
    """The garbage collector seldom runs in a broker: parts of the tier's cache that are not used any more would fill
    its disk."""

    class Large:
        """Data that a job gets."""

    def fail_with(_given: Large) -> None:
        raise OSError(5, "no luck")

    pool = ThreadPool()
    gc.disable()
    try:
        one = Large()
        gone = weakref.ref(one)
        with suppress(OSError):
            await pool.run(0, partial(fail_with, one))
        del one
        await pool.run(0, thread_name)
        await pool.run(0, thread_name)  # its thread has let go of the first
        assert gone() is None
    finally:
        gc.enable()
        pool.close()


async def test_thread_pool_lets_workers_in_while_the_loop_is_busy() -> None:
    pool, started, allowed, done = ThreadPool(), threading.Event(), threading.Event(), trio.Event()

    def job() -> None:
        started.set()
        allowed.wait()

    async def run() -> None:
        await pool.run(0, job)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        turns = 0
        while not done.is_set():  # a loop that never waits in a poll
            await trio.lowlevel.checkpoint()
            turns += 1
            if started.is_set():
                allowed.set()
    assert turns > 0
    pool.close()


async def test_loop_pool_runs_the_jobs_of_a_worker_in_order_and_finishes_started_jobs() -> None:
    pool, order = LoopPool(), list[int]()
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(pool.run, 0, lambda number=number: order.append(number))
            await trio.testing.wait_all_tasks_blocked()
    assert order == [0, 1, 2, 3, 4]
    with pytest.raises(OSError, match="no luck"):
        await pool.run(0, fail)
    with trio.CancelScope() as scope:
        scope.cancel()
        assert await pool.run(0, lambda: 7) == 7
    pool.close()


async def test_files_of_a_worker_without_a_kernel_context_are_synced_in_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_kernel: KernelSyncs, _worker: int) -> None: ...

    monkeypatch.setattr(KernelSyncs, "of", refused)
    synced_by: list[str] = []
    pool, file = ThreadPool(), PosixFileSystem().open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(type(file), "fdatasync", lambda _file: synced_by.append(thread_name()))
    try:
        await pool.sync(3, [file])
    finally:
        pool.close()
    assert synced_by == ["io-3"]


async def test_a_simulated_pool_delays_single_workers_and_finishes_hanging_jobs_after_the_hang() -> None:
    filesystem, delays = SimulatedFileSystem(), DiskDelays()
    pool, done = SimulatedPool(delays), list[tuple[str, float]]()
    file = filesystem.open("/file", create=True)

    async def sync(name: str, worker: int) -> None:
        await pool.sync(worker, [file])
        done.append((name, trio.current_time() - started_s))

    async def job(name: str, worker: int) -> None:
        await pool.run(worker, list)
        done.append((name, trio.current_time() - started_s))

    started_s = trio.current_time()
    delays.set([0], sync_s=2.5)
    delays.hang([1])
    async with trio.open_nursery() as nursery:
        for worker in (0, 1, 2):
            nursery.start_soon(sync, f"sync {worker}", worker)
            nursery.start_soon(job, f"job {worker}", worker)
        await trio.sleep(60)
        assert {*done} == {("sync 2", 0), ("job 2", 0), ("job 0", 0), ("sync 0", 2.5)}
        nursery.cancel_scope.cancel()  # no more than a system call is
        delays.set([1])
    assert len(done) == 6
