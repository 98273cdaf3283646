"""Expected gaps of several followers in one log dir: one checkpoint for all requests that wait."""

import errno

import pytest
import trio
import trio.testing

from engine.api import Following, TopicIdPartition
from engine.commit.commit_log import CommitLog
from engine.errors import StorageError
from engine.log_config import LogConfig
from engine.logs.recovery.checkpoints import key_of, read_checkpoint
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import running

PARTITIONS = [TopicIdPartition(bytes(15) + bytes([number]), f"compacted-{number}", 0) for number in range(1, 6)]


async def followers(store: SegmentStore) -> list[Partition]:
    """Open followers in one log dir."""
    found = await store.open_partitions([Following(one, LogConfig(), 0) for one in PARTITIONS])
    return [log for log in found if isinstance(log, Partition)]


def count_checkpoints(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one entry with each checkpoint."""
    counted, checkpoint_alone = list[int](), CommitLog.checkpoint_alone

    async def counting(commit_log: CommitLog) -> None:
        counted.append(len(counted))
        await checkpoint_alone(commit_log)

    monkeypatch.setattr(CommitLog, "checkpoint_alone", counting)
    return counted


def noted(filesystem: SimulatedFileSystem) -> list[int]:
    points = read_checkpoint(filesystem, "/data").partitions
    return [points[key_of(one)].compacted_to if key_of(one) in points else 0 for one in PARTITIONS]


async def test_the_partitions_of_one_fetch_share_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        logs = await followers(store)
        checkpoints = count_checkpoints(monkeypatch)
        async with trio.open_nursery() as nursery:
            for number, log in enumerate(logs, 1):
                nursery.start_soon(log.expect_gaps, 10 * number)
        assert noted(filesystem) == [10, 20, 30, 40, 50]
        assert [log.log.compacted_to for log in logs] == [10, 20, 30, 40, 50]
        assert len(checkpoints) == 1


async def test_gaps_announced_during_a_checkpoint_wait_for_the_next_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        first, *others = await followers(store)
        checkpoints = count_checkpoints(monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.expect_gaps, 10)
            while not checkpoints:
                await trio.lowlevel.checkpoint()
            for log in others:
                nursery.start_soon(log.expect_gaps, 20)
        assert noted(filesystem) == [10, 20, 20, 20, 20]
        assert len(checkpoints) == 2


async def test_a_task_that_is_cancelled_leaves_the_gaps_of_others_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        first, *others = await followers(store)
        checkpoints = count_checkpoints(monkeypatch)
        cancelled = trio.CancelScope()

        async def expect_until_cancelled() -> None:
            with cancelled:
                await first.expect_gaps(10)

        async with trio.open_nursery() as nursery:
            async with first.log_dir.commit_log.replacing():
                nursery.start_soon(expect_until_cancelled)
                await trio.testing.wait_all_tasks_blocked()
                for log in others:
                    nursery.start_soon(log.expect_gaps, 20)
                await trio.testing.wait_all_tasks_blocked()
            while not checkpoints:
                await trio.lowlevel.checkpoint()
            cancelled.cancel()
        assert noted(filesystem)[1:] == [20, 20, 20, 20]
        assert [log.log.compacted_to for log in others] == [20, 20, 20, 20]


async def test_a_failed_checkpoint_raises_for_all_waiting_followers() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        logs = await followers(store)
        filesystem.faults.append(Fault("write", errno.ENOSPC, "checkpoint.tmp"))
        failed = list[Partition]()

        async def expect(log: Partition) -> None:
            with pytest.raises(StorageError):
                await log.expect_gaps(10)
            failed.append(log)

        async with trio.open_nursery() as nursery:
            for log in logs:
                nursery.start_soon(expect, log)
        assert len(failed) == len(logs)
        assert [log.log.compacted_to for log in logs] == [0] * len(logs)
        for log in logs:
            await log.expect_gaps(10)
        assert noted(filesystem) == [10] * len(logs)
