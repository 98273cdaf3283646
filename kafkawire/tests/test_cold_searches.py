"""Offsets and records that are looked for, where only a remote tier has the segments they are in."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from starlette.applications import Starlette

from kafkawire.http.record_search import RecordSearch
from kafkawire.http.tests.asgi import asked
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.requests.context import allow_all
from kafkawire.testing import EPOCH_MS, MemoryWorld
from kafkawire.tests.cold_world import COLD, VALUE_BYTES, WARM, Cold, cold_broker
from tiering.stores.memory import Fault

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NEWEST = 11
NOTHING = (-1, -1, -1)


async def offset_of(cold: Cold, timestamp: int, topic: str = COLD) -> tuple[int, int, int]:
    """Offset, timestamp, leader epoch."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    reply: Any = await cold.client.call(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics), NEWEST)
    [row] = reply.topics[0].partitions
    assert row.error_code == 0
    return row.offset, row.timestamp, row.leader_epoch


async def test_the_named_points_of_a_log_in_two_tiers() -> None:
    async with cold_broker(1, 4) as cold:
        epoch = cold.log().leader_epoch
        assert await offset_of(cold, EARLIEST) == (0, -1, epoch)
        assert await offset_of(cold, LATEST_TIERED) == (3, -1, epoch)
        assert await offset_of(cold, EARLIEST_LOCAL) == (4, -1, epoch)
        assert await offset_of(cold, EARLIEST_PENDING_UPLOAD) == (4, -1, epoch)
        assert await offset_of(cold, LATEST) == (5, -1, epoch)
        await cold.append(COLD, 0, b"small", at_s=6)
        await cold.log().delete_records(5)
        assert await offset_of(cold, EARLIEST_PENDING_UPLOAD) == (5, -1, epoch)
        await cold.log().delete_records(6)  # as in Kafka, what begins at the end is nothing
        assert await offset_of(cold, EARLIEST_PENDING_UPLOAD) == NOTHING


async def test_the_latest_record_is_found_in_the_tier() -> None:
    async with cold_broker(1, 4) as cold:
        await cold.append(COLD, 0, bytes(VALUE_BYTES), at_s=1000)
        for _ in range(2):
            await cold.append(COLD, 0, bytes(VALUE_BYTES), at_s=10)
        await trio.sleep(5)
        epoch = cold.log().leader_epoch
        assert (await offset_of(cold, EARLIEST_LOCAL))[0] > 5
        assert await offset_of(cold, MAX_TIMESTAMP) == (5, EPOCH_MS + 1_000_000, epoch)
        assert await offset_of(cold, EPOCH_MS + 1501) == (2, EPOCH_MS + 2000, epoch)
        assert await offset_of(cold, EPOCH_MS + 1_000_001) == NOTHING


async def test_what_is_not_uploaded_yet_is_pending_from_the_log_start_on() -> None:
    world = MemoryWorld()
    world.objects.fault = lambda _operation, _key: Fault(is_lost=True)
    async with cold_broker(1, 4, world) as cold:
        epoch = cold.log().leader_epoch
        assert await offset_of(cold, LATEST_TIERED) == NOTHING
        assert await offset_of(cold, EARLIEST_PENDING_UPLOAD) == (0, -1, epoch)
        assert await offset_of(cold, EARLIEST_LOCAL) == (0, -1, epoch)


async def test_nothing_is_pending_in_a_topic_without_a_tier() -> None:
    async with cold_broker() as cold:
        assert await offset_of(cold, LATEST_TIERED, WARM) == NOTHING
        assert await offset_of(cold, EARLIEST_PENDING_UPLOAD, WARM) == NOTHING


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({"key": "1"}, [1, 3]),
        ({"from": EPOCH_MS + 1000, "to": EPOCH_MS + 3000}, [1, 2]),
        ({"key": "0", "from": EPOCH_MS + 1}, [2, 4]),
    ],
)
async def test_records_are_found_by_key_and_by_time(query: dict[str, object], offsets: list[int]) -> None:
    async with cold_broker(1, 4, index_keys="true") as cold:
        assert (await offset_of(cold, EARLIEST_LOCAL))[0] == 4
        broker = cold.opened.broker
        app = Starlette(routes=RecordSearch(broker.coordinator, broker.store, allow_all).routes())
        found: list[int] = []
        gets = cold.gets
        while True:
            status, body = await asked(app, f"/v1/topics/{COLD}/messages", **query)
            assert status == 200, body
            page = json.loads(body)
            found += [one["offset"] for one in page["messages"]]
            if page["next"] is None:
                break
            query = {**query, "after": page["next"]}
        assert found == offsets
        assert cold.gets > gets
