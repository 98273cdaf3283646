"""Searches for offsets and records whose segments only the remote tier has."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from starlette.applications import Starlette

from kafkawire.http.queries import ReadableTopics
from kafkawire.http.record_search import RecordSearch
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.requests.context import allow_all
from kafkawire.testing import EPOCH_MS, MemoryDeps
from testkit.asgi import get_response
from testkit.cold_broker import COLD, VALUE_BYTES, WARM, Cold, cold_broker
from tiering.stores.memory import HEALTHY, Fault

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NEWEST = 11
NOTHING = (-1, -1, -1)
UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, STORAGE_ERROR = 3, 7, 56


async def asked_for(cold: Cold, *wanted: tuple[str, int, int], timeout_ms: int = 0, version: int = NEWEST) -> list[Any]:
    """The rows for these topics, partitions and timestamps, one partition of a topic after the other."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition, timestamp in wanted:
        one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(one)
    named = [ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=named, timeout_ms=timeout_ms)
    reply: Any = await cold.client.call(request, version)
    return [row for topic in reply.topics for row in topic.partitions]


async def offset_of(cold: Cold, timestamp: int, topic: str = COLD) -> tuple[int, int, int]:
    """Offset, timestamp, leader epoch."""
    [row] = await asked_for(cold, (topic, 0, timestamp))
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
        await cold.log().delete_records(6)  # as in Kafka, no upload is pending at the log end
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


async def test_lookup_in_a_slow_tier_times_out_alone_and_its_late_result_is_kept() -> None:
    """Offsets from local segments do not wait for the tier, and a late answer of the tier is there at the next
    request."""
    async with cold_broker(3, 4) as cold:
        cold.read_with(Fault(wait_s=100), partition=1)
        wanted = [(COLD, 0, EPOCH_MS + 1000), (COLD, 1, EPOCH_MS + 1000), (COLD, 2, MAX_TIMESTAMP)]
        known = [(WARM, 0, EPOCH_MS), (WARM, 1, EPOCH_MS)]
        began_s = trio.current_time()
        rows = await asked_for(cold, *wanted, *known)
        assert trio.current_time() - began_s == pytest.approx(30)
        assert [row.error_code for row in rows] == [0, REQUEST_TIMED_OUT, 0, 0, UNKNOWN_TOPIC_OR_PARTITION]
        assert [row.offset for row in rows] == [1, -1, 4, 0, -1]
        assert [row.timestamp for row in rows] == [EPOCH_MS + 1000, -1, EPOCH_MS + 4000, EPOCH_MS, -1]
        await trio.sleep(300)
        began_s, gets = trio.current_time(), cold.gets
        [row] = await asked_for(cold, (COLD, 1, EPOCH_MS + 1000))
        assert (row.offset, trio.current_time() - began_s, cold.gets - gets) == (1, 0, 0)


async def test_points_that_are_known_do_not_wait_for_the_tier() -> None:
    async with cold_broker(6, 2) as cold:
        cold.read_with(Fault(wait_s=1000))
        began_s = trio.current_time()
        points = LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, EPOCH_MS + 2000
        rows = await asked_for(cold, *((COLD, number, point) for number, point in enumerate(points)))
        assert trio.current_time() == began_s
        assert [row.error_code for row in rows] == [0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(("version", "waited_s"), [(9, 30), (10, 45), (11, 45)])
async def test_list_offsets_waits_for_the_timeout_of_the_request_from_version_10(version: int, waited_s: float) -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(wait_s=100))
        began_s = trio.current_time()
        [row] = await asked_for(cold, (COLD, 0, EPOCH_MS), timeout_ms=45_000, version=version)
        assert trio.current_time() - began_s == pytest.approx(waited_s)
        assert row.error_code == REQUEST_TIMED_OUT


async def test_lookup_in_an_unreachable_tier_returns_a_storage_error_at_once() -> None:
    async with cold_broker() as cold:
        cold.read_with(Fault(is_lost=True))
        began_s = trio.current_time()
        [row] = await asked_for(cold, (COLD, 0, EPOCH_MS))
        assert (row.error_code, row.offset, trio.current_time() - began_s) == (STORAGE_ERROR, -1, 0)
        cold.read_with(HEALTHY)
        assert (await offset_of(cold, EPOCH_MS))[0] == 0


async def test_earliest_pending_upload_is_the_log_start_while_nothing_is_uploaded() -> None:
    deps = MemoryDeps()
    deps.objects.fault = lambda _operation, _key: Fault(is_lost=True)
    async with cold_broker(1, 4, deps) as cold:
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
        topics = ReadableTopics(broker.coordinator, broker.store, allow_all)
        app = Starlette(routes=RecordSearch(topics).routes())
        found: list[int] = []
        gets = cold.gets
        while True:
            status, body = await get_response(app, f"/v1/topics/{COLD}/messages", **query)
            assert status == 200, body
            page = json.loads(body)
            found += [one["offset"] for one in page["messages"]]
            if page["next"] is None:
                break
            query = {**query, "after": page["next"]}
        assert found == offsets
        assert cold.gets > gets
