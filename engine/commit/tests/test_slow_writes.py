"""Commit batches are written by workers while the page cache is throttled."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio
import trio.testing

from engine.commit.writer import SLOW_FOR_S, SLOW_WRITE_S, Writer
from engine.files.disk import Disk, DiskWorkers
from engine.files.filesystem import File
from engine.files.io_workers import LoopPool
from engine.testing.simulated_disk import SimulatedFileSystem

T = TypeVar("T")


class CountingPool(LoopPool):
    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        self.jobs += 1
        return await super().run(worker, job)

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_write_that_took_long_sends_the_next_ones_to_a_worker_for_a_while() -> None:
    pool = CountingPool()
    disk = Disk("/data", SimulatedFileSystem(), pool, DiskWorkers.of(0, 1), lambda _: None)
    writer = Writer(disk)

    def slow() -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(SLOW_WRITE_S * 1.5)

    async def jobs_for(write: Callable[[], None]) -> int:
        before = pool.jobs
        await writer.perform(write, 100)
        return pool.jobs - before

    def quick() -> None: ...

    assert await jobs_for(quick) == 0
    assert await jobs_for(slow) == 0
    assert await jobs_for(quick) == 1
    await trio.sleep(SLOW_FOR_S * 0.8)
    assert await jobs_for(slow) == 1  # still on a worker; the slow write extends the time
    await trio.sleep(SLOW_FOR_S * 0.8)
    assert await jobs_for(quick) == 1
    await trio.sleep(SLOW_FOR_S)
    assert await jobs_for(quick) == 0
