"""Records over HTTP: by key, by time, by offset; page after page, and refusals."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from starlette.applications import Starlette

from engine.api import TopicIdPartition
from engine.batches.batch import Record, RecordHeader, build_batch
from engine.reading import search
from kafkawire.http import record_search
from kafkawire.http.queries import BadRequest, ReadableTopics
from kafkawire.http.record_search import Query, RecordSearch
from kafkawire.requests.context import allow_all
from kafkawire.testing import EPOCH_MS, OpenBroker, open_broker
from testkit.asgi import get_response

PATH = "/v1/topics/orders/messages"


async def fill(opened: OpenBroker, count: int = 6) -> None:
    """Fill two partitions. Record n of each has the time of second n, and the key n modulo 3."""
    topic = await opened.broker.coordinator.create_topic(
        "orders", partition_count=2, configs={"index.keys": "true", "segment.bytes": str(1 << 20)}
    )
    for partition in range(2):
        log = opened.broker.store.get(TopicIdPartition(topic.topic_id, "orders", partition))
        for number in range(count):
            record = Record(b"%d" % (number % 3), b"value %d" % number, EPOCH_MS + 1000 * number)
            await log.append(memoryview(build_batch([record])), acks=-1).wait()


def app_of(opened: OpenBroker, authorizer: Any = allow_all) -> Starlette:
    topics = ReadableTopics(opened.broker.coordinator, opened.broker.store, authorizer)
    return Starlette(routes=RecordSearch(topics).routes())


@asynccontextmanager
async def filled() -> AsyncIterator[Starlette]:
    async with open_broker() as opened:
        await fill(opened)
        yield app_of(opened)


async def places(app: Starlette, **query: object) -> list[tuple[int, int]]:
    """Partitions and offsets of the records on all pages."""
    found: list[tuple[int, int]] = []
    while True:
        status, body = await get_response(app, PATH, **query)
        document = json.loads(body)
        assert status == 200, document
        found += [(one["partition"], one["offset"]) for one in document["messages"]]
        if document["next"] is None:
            return found
        query["after"] = document["next"]


async def test_a_message_is_told_whole() -> None:
    async with open_broker() as opened:
        topic = await opened.broker.coordinator.create_topic("orders", partition_count=1)
        log = opened.broker.store.get(TopicIdPartition(topic.topic_id, "orders", 0))
        record = Record(None, b"\xff\x00", EPOCH_MS, (RecordHeader(b"trace", b"7"), RecordHeader(b"none", None)))
        await log.append(memoryview(build_batch([record])), acks=-1).wait()
        status, body = await get_response(app_of(opened), PATH, partition=0, offset=0)
    assert status == 200
    assert json.loads(body) == {
        "topic": "orders",
        "messages": [
            {
                "partition": 0,
                "offset": 0,
                "timestamp": EPOCH_MS,
                "timestamp_type": "CreateTime",
                "key": None,
                "value": {"base64": "/wA="},
                "headers": [{"key": "trace", "value": "7"}, {"key": "none", "value": None}],
            }
        ],
        "next": None,
    }


async def test_by_key() -> None:
    async with filled() as app:
        assert await places(app, key="1") == [(0, 1), (0, 4), (1, 1), (1, 4)]
        assert await places(app, key_base64=base64.b64encode(b"1").decode(), partition=1) == [(1, 1), (1, 4)]
        assert await places(app, key="no such key") == []


async def test_by_time() -> None:
    async with filled() as app:
        window = {"from": EPOCH_MS + 2000, "to": EPOCH_MS + 4000}
        assert await places(app, **window) == [(0, 2), (0, 3), (1, 2), (1, 3)]
        assert await places(app, **window, key="2") == [(0, 2), (1, 2)]
        assert await places(app, **{"from": "2999-01-01T00:00:00"}) == []
        assert await places(app, to=EPOCH_MS + 1000, partition=0) == [(0, 0)]


async def test_by_offset() -> None:
    async with filled() as app:
        assert await places(app, offset=4, partition=1) == [(1, 4), (1, 5)]
        assert await places(app, offset=400, partition=1) == []


@pytest.mark.parametrize("limit", [1, 3, 7])
async def test_pages_are_a_whole(limit: int) -> None:
    async with filled() as app:
        expected = [(partition, number) for partition in range(2) for number in range(6)]
        assert await places(app, **{"from": 0}, limit=limit) == expected
        assert await places(app, key="0", limit=limit) == [(0, 0), (0, 3), (1, 0), (1, 3)]


async def test_an_answer_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with filled() as app:
        for name, bound in (("ANSWER_BYTES", 1), ("ANSWER_S", 0.0)):
            with monkeypatch.context() as patch:
                patch.setattr(record_search, name, bound)
                status, body = await get_response(app, PATH, **{"from": 0})
                assert status == 200
                assert json.loads(body)["next"] is not None


async def test_headers_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_search, "ANSWER_BYTES", 250_000)
    monkeypatch.setattr(search, "STEP_BYTES", 100_000)
    async with open_broker() as opened:
        topic = await opened.broker.coordinator.create_topic("orders", partition_count=1)
        log = opened.broker.store.get(TopicIdPartition(topic.topic_id, "orders", 0))
        long, many = (RecordHeader(b"trace", bytes(100_000)),), (RecordHeader(b"", None),) * 5000
        batch = build_batch([Record(None, None, EPOCH_MS, headers) for headers in (long, many, long, many)])
        await log.append(memoryview(batch), acks=-1).wait()
        _, body = await get_response(app_of(opened), PATH, partition=0, offset=0)
    document = json.loads(body)
    assert ([one["offset"] for one in document["messages"]], document["next"]) == ([0, 1], "0:2")


async def test_a_search_that_cannot_be_answered_is_refused_with_a_status() -> None:
    async with open_broker() as opened:
        await fill(opened)
        await opened.broker.coordinator.create_topic("unindexed", partition_count=1)
        app = app_of(opened)
        for path, query, status, reason in (
            ("/v1/topics/other/messages", {"key": "1"}, 404, "there is no topic other"),
            (PATH, {"offset": 0, "partition": 2}, 404, "orders has no partition 2"),
            ("/v1/topics/unindexed/messages", {"key": "1"}, 400, "unindexed is not indexed by key"),
            (PATH, {}, 400, "ask by key"),
        ):
            answered, body = await get_response(app, path, **query)
            assert answered == status
            assert json.loads(body)["error"].startswith(reason)
        refused = app_of(opened, lambda *_: False)
        assert await get_response(refused, PATH, key="1") == (403, '{"error":"orders may not be read"}')
        await opened.broker.store.close()
        status, _ = await get_response(app, PATH, key="1")
        assert status == 503


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"key": "1", "offset": "1"}, "ask by key"),
        ({"key": "1", "key_base64": "MQ=="}, "ask by key"),
        ({"key": "1", "filter": "x"}, "unknown parameter filter"),
        ({"key_base64": "?"}, "key_base64 is not base64"),
        ({"key_base64": "é"}, "key_base64 is not base64"),
        ({"key": "1", "partition": "3", "after": "1:0"}, "after is of another partition"),
        ({"offset": "1"}, "offset needs a partition"),
        ({"offset": "-1", "partition": "0"}, "offset is not a number"),
        ({"from": "yesterday"}, "'yesterday' is neither"),
        ({"key": "1", "limit": "1001"}, "limit is not a number from 1 to 1000"),
        ({"key": "1", "limit": "0"}, "limit is not a number from 1 to 1000"),
        ({"key": "1", "after": "7"}, "after is not a number"),
        ({"key": "1", "partition": "٣"}, "partition is not a number"),
    ],
)
def test_a_query_with_invalid_parameters_raises_bad_request(given: dict[str, str], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        Query.parse(given)


async def test_a_key_that_is_no_text_is_not_taken_for_another() -> None:
    async with open_broker() as opened:
        topic = await opened.broker.coordinator.create_topic(
            "orders", partition_count=1, configs={"index.keys": "true", "segment.bytes": str(1 << 20)}
        )
        log = opened.broker.store.get(TopicIdPartition(topic.topic_id, "orders", 0))
        await log.append(memoryview(build_batch([Record("\ufffd".encode(), b"", EPOCH_MS)])), acks=-1).wait()
        app = app_of(opened)
        status, body = await get_response(app, PATH, key=b"\xff")
        assert (status, json.loads(body)["error"][:23]) == (400, "the query is not UTF-8;")
        assert await places(app, key="\ufffd") == [(0, 0)]
        assert await places(app, key_base64="/w==") == []
        assert await places(app, key="") == []


async def test_searches_take_turns() -> None:
    async with filled() as app:
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await get_response(app, PATH, key="1"))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(3 * record_search.SEARCHES_MAX):
                nursery.start_soon(ask)
        assert answers == [200] * 3 * record_search.SEARCHES_MAX
