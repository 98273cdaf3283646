"""A partition that was closed while its log dir is online is opened again, with its records, without truncated ones."""

import errno
from collections.abc import Sequence

import pytest
import trio

from engine.api import Following, Leadership, Role, TopicIdPartition
from engine.errors import EngineError, StorageError
from engine.log_config import FlushPolicy, LogConfig
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import ORDERS, append, batch, open_orders, read_all, running

CONFIG = LogConfig(segment_size_bytes=400)
COUNT = 9


async def filled(store: SegmentStore, config: LogConfig = CONFIG) -> Partition:
    log = await open_orders(store, config)
    assert isinstance(log, Partition)
    for number in range(COUNT):
        await append(log, b"value %d" % number)
    return log


def values(count: int) -> dict[int, bytes | None]:
    return {number: b"value %d" % number for number in range(count)}


def close(log: Partition) -> None:
    log.put_offline(lambda: StorageError("closed by a test"))


async def opened(store: SegmentStore, *roles: Role) -> Sequence[Partition | EngineError]:
    return await store.open_partitions(roles, again=[one.partition for one in roles])


async def led(store: SegmentStore, leader_epoch: int) -> Partition:
    [log] = await opened(store, Leadership(ORDERS, CONFIG, leader_epoch))
    assert isinstance(log, Partition)
    return log


@pytest.mark.parametrize("config", [CONFIG, LogConfig(flush_policy=FlushPolicy.ASYNC)])
async def test_a_reopened_log_has_all_its_records(config: LogConfig) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store, config)
        closed: list[TopicIdPartition] = []
        store.on_closed = closed.append
        close(log)
        assert closed == [ORDERS]
        with pytest.raises(StorageError, match="closed by a test"):
            store.replica(ORDERS)
        [again] = await opened(store, Following(ORDERS, config, 1))
        assert isinstance(again, Partition)
        assert again.opening == (0, COUNT, False, False, True)
        log = await led(store, 2)
        assert await read_all(log) == values(COUNT)
        assert (await append(log, b"value 9")).base_offset == COUNT
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, config, leader_epoch=3)) == values(COUNT + 1)


async def test_a_closed_log_stays_closed_without_a_request_to_reopen_it() -> None:
    async with running(SimulatedFileSystem()) as store:
        close(await filled(store))
        [refused] = await store.open_partitions([Leadership(ORDERS, CONFIG, 1)])
        assert isinstance(refused, StorageError)


async def test_a_log_is_not_reopened_if_its_checkpoint_fails() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        close(await filled(store))
        filesystem.faults.append(Fault("write", errno.ENOSPC, "/checkpoint.tmp"))
        [refused] = await opened(store, Following(ORDERS, CONFIG, 1))
        assert isinstance(refused, StorageError)
        assert await read_all(await led(store, 2)) == values(COUNT)


async def test_j2_truncated_records_are_not_there_when_the_log_is_reopened() -> None:
    """No checkpoint has followed the truncation."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await filled(store)
        await trio.sleep(70)
        filesystem.faults.append(Fault("write", errno.ENOSPC, "/checkpoint.tmp"))
        with pytest.raises(StorageError):
            await store.truncate_partition(ORDERS, 4, below_sealed=True)
        log = await led(store, 1)
        assert await read_all(log) == values(4)
        await append(log, b"value 4")
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, CONFIG, leader_epoch=2)) == values(5)


@pytest.mark.parametrize(("kind", "suffix"), [("create", ".log"), ("write", "/checkpoint.tmp")])
async def test_j2_a_log_whose_reset_failed_is_empty_when_it_is_reopened(kind: str, suffix: str) -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        await filled(store)
        await trio.sleep(70)
        filesystem.faults.append(Fault(kind, errno.ENOSPC, suffix))
        with pytest.raises(StorageError):
            await store.reset_partition(ORDERS, 20)
        log = await led(store, 1)
        assert (log.log_start_offset, log.log_end_offset) == (20, 20)
        assert (await append(log, b"value 20")).base_offset == 20


async def test_reopening_a_log_leaves_newer_records_of_another_log_unchanged() -> None:
    """Both logs were truncated together, and one of them is opened again first."""
    filesystem, other = SimulatedFileSystem(), TopicIdPartition(bytes([5] * 16), "payments", 0)
    async with running(filesystem) as store:
        await filled(store)
        second = await store.open_partition(other, CONFIG, 0)
        for number in range(COUNT):
            await append(second, b"value %d" % number)
        filesystem.faults.append(Fault("write", errno.ENOSPC, "/checkpoint.tmp"))
        errors = await store.truncate_partitions({ORDERS: 4, other: 4}, below_sealed=True)
        assert all(isinstance(one, StorageError) for one in errors)
        first = await led(store, 1)
        for number in range(4, COUNT):
            await append(first, b"value %d" % number)
        [again] = await opened(store, Leadership(other, CONFIG, 1))
        assert isinstance(again, Partition)
        assert await read_all(again) == values(4)
        assert await read_all(first) == values(COUNT)
    async with running(filesystem) as store:
        assert await read_all(await open_orders(store, CONFIG, leader_epoch=2)) == values(COUNT)


async def test_no_log_of_a_log_dir_that_is_offline_is_opened_again() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await filled(store)
        filesystem.faults.append(Fault("write", errno.EIO))
        with pytest.raises(StorageError):
            await log.append(memoryview(batch(b"lost")), acks=-1).wait()
        filesystem.faults.clear()
        [refused] = await opened(store, Following(ORDERS, CONFIG, 1))
        assert isinstance(refused, StorageError)
