"""ListOffsets: the named points by version, exact timestamps, errors."""

from __future__ import annotations

import pytest

from engine.log_config import LogConfig
from kafkawire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkawire.tests.harness import NOW_MS, Broker, batch, open_handlers

NEWEST = 11


def partition(timestamp: int, number: int = 0, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=number, timestamp=timestamp, current_leader_epoch=epoch)


async def ask(
    broker: Broker, *partitions: ListOffsetsPartition, topic: str = "t", version: int = NEWEST, isolation: int = 0
) -> list[ListOffsetsPartitionResponse]:
    asked = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=list(partitions))],
    )
    response = await broker.ask(asked, version)
    [found] = response.topics
    assert found.name == topic
    rows: list[ListOffsetsPartitionResponse] = found.partitions
    return rows


async def three_records(broker: Broker) -> None:
    """Append three batches of one record, at NOW, NOW + 10 and NOW + 20."""
    await broker.create("t")
    for number in range(3):
        pending = broker.log("t").append(memoryview(batch(timestamp_ms=NOW_MS + 10 * number)), acks=-1)
        await pending.wait()


@pytest.mark.parametrize("version", range(1, NEWEST + 1))
@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 3), (-2, 0), (NOW_MS, 0), (NOW_MS + 1, 1), (NOW_MS + 20, 2), (NOW_MS + 21, -1)]
)
async def test_the_offset_at_a_time(version: int, timestamp: int, offset: int) -> None:
    async with open_handlers() as broker:
        await three_records(broker)
        [row] = await ask(broker, partition(timestamp), version=version)
        assert (row.error_code, row.offset) == (0, offset)
        if timestamp < 0 or offset < 0:
            assert row.timestamp == -1
        else:
            assert row.timestamp == NOW_MS + 10 * offset


@pytest.mark.parametrize(("timestamp", "since", "offset"), [(-3, 7, 2), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)])
async def test_later_named_points(timestamp: int, since: int, offset: int) -> None:
    async with open_handlers() as broker:
        await three_records(broker)
        [row] = await ask(broker, partition(timestamp), version=since)
        assert (row.error_code, row.offset) == (0, offset)
        [row] = await ask(broker, partition(timestamp), version=since - 1)
        assert (row.error_code, row.offset, row.timestamp) == (35, -1, -1)


async def test_other_negative_numbers_mean_nothing() -> None:
    async with open_handlers() as broker:
        await three_records(broker)
        assert [row.error_code for row in await ask(broker, partition(-7))] == [35]


async def test_read_committed_sees_the_same_end_while_there_are_no_transactions() -> None:
    async with open_handlers() as broker:
        await three_records(broker)
        assert [row.offset for row in await ask(broker, partition(-1), isolation=1)] == [3]


async def test_partitions_that_are_not_there() -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        assert [row.error_code for row in await ask(broker, partition(-1, 7), partition(-1))] == [3, 0]
        assert [row.error_code for row in await ask(broker, partition(-1), topic="nope")] == [3]


async def test_leader_epochs_are_compared() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 3)
        for number in range(3):
            await broker.store.open_partition(broker.log("t", number).partition, LogConfig(), 5)
        found = await ask(broker, *(partition(-1, number, epoch) for number, epoch in enumerate((4, 5, 6))))
        assert [row.error_code for row in found] == [74, 0, 75]


async def test_a_partition_named_twice_is_refused_once() -> None:
    async with open_handlers() as broker:
        await broker.create("t", 2)
        found = await ask(broker, partition(-1), partition(-2), partition(-1, 1))
        assert [row.error_code for row in found] == [42, 0]
