"""A stop closes each log dir by itself: a disk that hangs delays no other one, and costs no other one its
clean-shutdown marker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from engine.api import TopicIdPartition
from engine.closing import LATE_AFTER_S
from engine.errors import NotLeaderOrFollower
from engine.files.disk import DiskWorkers
from engine.log_config import LogConfig
from engine.log_dirs.layout import CLEAN_SHUTDOWN
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem, SimulatedPool
from testkit.logs import append, batch, options, running

ON_A, ON_B = (TopicIdPartition(bytes(16), "payments", number) for number in (0, 1))
WORKERS_OF_A = DiskWorkers.of(0, options().reader_workers)


@asynccontextmanager
async def two_disks(
    filesystem: SimulatedFileSystem, pool: SimulatedPool, problems: list[str]
) -> AsyncIterator[SegmentStore]:
    async with running(filesystem, options("/a", "/b"), pool=pool, problems=problems) as store:
        for partition, path in ((ON_A, "/a"), (ON_B, "/b")):
            log = await store.open_partition(partition, LogConfig(), 0)
            assert log.log_dir.disk.path == path
            await append(log, b"x")
        try:
            yield store
        finally:
            pool.delays.set(WORKERS_OF_A.all)


@pytest.mark.parametrize("blocked", ["append", "opening", "checkpoint"])
async def test_a_hanging_log_dir_does_not_keep_another_from_its_clean_shutdown_marker(blocked: str) -> None:
    filesystem, pool, problems = SimulatedFileSystem(), SimulatedPool(), list[str]()
    async with two_disks(filesystem, pool, problems) as store, trio.open_nursery() as nursery:
        pool.delays.hang(WORKERS_OF_A.all)
        if blocked == "append":
            store.get(ON_A).append(memoryview(batch(b"never answered")), acks=1)
        elif blocked == "opening":
            nursery.start_soon(store.open_partition, TopicIdPartition(bytes(16), "payments", 2), LogConfig(), 0)
        else:
            nursery.start_soon(store.get(ON_A).log_dir.commit_log.checkpoint)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(store.close)
        await trio.sleep(LATE_AFTER_S + 2)
        assert filesystem.exists(f"/b/{CLEAN_SHUTDOWN}")
        assert not filesystem.exists(f"/a/{CLEAN_SHUTDOWN}")
        assert [one.split(" unless ")[0] for one in problems] == ["/a does not answer:"]
        pool.delays.set(WORKERS_OF_A.all)  # and when it answers in time, it is closed in order as well
    assert filesystem.exists(f"/a/{CLEAN_SHUTDOWN}")


async def test_nothing_is_written_behind_the_marker() -> None:
    filesystem, pool = SimulatedFileSystem(), SimulatedPool()
    async with two_disks(filesystem, pool, []) as store, trio.open_nursery() as nursery:
        disk = store.get(ON_B).log_dir.disk
        pool.delays.hang(WORKERS_OF_A.all)
        nursery.start_soon(store.delete_partitions, [ON_A])
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(store.close)
        await trio.sleep(LATE_AFTER_S + 2)
        assert filesystem.exists(f"/b/{CLEAN_SHUTDOWN}")
        [error] = await store.delete_partitions([ON_B])
        assert isinstance(error, NotLeaderOrFollower)
        pool.delays.set(WORKERS_OF_A.all)
        await trio.testing.wait_all_tasks_blocked()
        assert filesystem.exists("/b/payments-1"), "the next start deletes it"
        assert disk.offline_reason is None
