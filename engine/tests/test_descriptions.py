"""Descriptions of log dirs and producers for operators."""

import errno

import pytest

from engine.api import ActiveProducer, TopicIdPartition
from engine.errors import StorageError, UnknownPartition
from engine.log_config import LogConfig
from engine.partitions.tests.test_idempotence import send
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import NOW_MS, ORDERS, append, open_orders, options, running


async def test_log_dirs_with_the_sizes_of_their_partitions_and_their_space() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/one", "/two")) as store:
        log = await open_orders(store)
        await append(log, b"v" * 1_000)
        other = TopicIdPartition(ORDERS.topic_id, "orders", 1)
        await store.open_partition(other, LogConfig(), 0)
        one, two = await store.describe_log_dirs()
        assert [(found.path, found.is_online) for found in (one, two)] == [("/one", True), ("/two", True)]
        assert one.partition_size_bytes == {ORDERS: len(filesystem.content("/one/orders-0/00000000000000000000.log"))}
        assert two.partition_size_bytes == {other: 0}
        assert one.total_bytes == filesystem.capacity_bytes > one.usable_bytes > 0


async def test_the_description_of_an_offline_log_dir_has_no_sizes() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem, options("/one", "/two")) as store:
        log = await open_orders(store)
        filesystem.faults.append(Fault("write", errno.EIO, ".log", is_lasting=True))
        with pytest.raises(StorageError):
            await append(log, b"v")
        one, two = await store.describe_log_dirs()
        assert (one.is_online, one.total_bytes, one.usable_bytes, one.partition_size_bytes) == (False, -1, -1, {})
        assert two.is_online


async def test_producers_with_their_last_sequence() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        await append(log, b"of nobody")
        assert store.active_producers(ORDERS) == []
        await send(log, 0, count=3).wait()
        await send(log, 5, producer_id=8).wait()
        await send(log, 3, count=2).wait()
        assert store.active_producers(ORDERS) == [ActiveProducer(8, 0, 5, NOW_MS), ActiveProducer(9, 0, 4, NOW_MS)]
        with pytest.raises(UnknownPartition):
            store.active_producers(TopicIdPartition(bytes(16), "orders", 0))
