"""DeleteRecords and OffsetForLeaderEpoch on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkawire.testing import open_broker
from kafkawire.tests.harness import open_handlers


def delete_request(*offsets: int, topic: str = "t", partition: int = 0) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=partition, offset=offset) for offset in offsets]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)


def rows(response: Any) -> list[tuple[int, int]]:
    return [(row.error_code, row.low_watermark) for row in response.topics[0].partitions]


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_up_to_an_offset(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        for value in (b"a", b"b", b"c"):
            await broker.append("t", value)
        assert rows(await broker.ask(delete_request(2), version)) == [(0, 2)]
        assert rows(await broker.ask(delete_request(1, -1, 4, -2), version)) == [(0, 2), (0, 3), (1, -1), (1, -1)]


@pytest.mark.parametrize(
    ("topic", "partition", "code"), [("missing", 0, 3), ("t", 7, 3), ("__consumer_offsets", 0, 17)]
)
async def test_where_nothing_can_be_deleted(topic: str, partition: int, code: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.create("__consumer_offsets")
        assert rows(await broker.ask(delete_request(0, topic=topic, partition=partition), 2)) == [(code, -1)]


@pytest.mark.parametrize(("policy", "row"), [("delete", (0, 0)), ("compact", (44, -1)), ("compact,delete", (0, 0))])
async def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(policy: str, row: tuple[int, int]) -> None:
    async with open_broker() as opened:
        await opened.broker.coordinator.create_topic("t", partition_count=1, configs={"cleanup.policy": policy})
        assert rows(await opened.connect().call(delete_request(0, -1), 2)) == [row, row]


def epoch_request(epoch: int, current: int = -1, topic: str = "t", partition: int = 0) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])


@pytest.mark.parametrize("version", range(2, 5))
async def test_where_an_epoch_ends(version: int) -> None:
    async with open_handlers() as broker:
        await broker.create("t")
        await broker.append("t", b"a")

        async def ask(*arguments: Any, **named: Any) -> tuple[int, int, int]:
            row = (await broker.ask(epoch_request(*arguments, **named), version)).topics[0].partitions[0]
            return row.error_code, row.leader_epoch, row.end_offset

        assert await ask(0) == (0, 0, 1)
        assert await ask(5) == (0, -1, -1)
        assert await ask(-1) == (0, -1, -1)
        assert await ask(0, 0) == (0, 0, 1)
        assert await ask(0, 3) == (75, -1, -1)
        assert await ask(0, partition=4) == (3, -1, -1)
        assert await ask(0, topic="missing") == (3, -1, -1)
