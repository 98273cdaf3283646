"""Appends at offset over HTTP: accepted ones, allowed clients, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette

from engine.api import TopicIdPartition
from engine.append_at_offset import KeptBatches
from engine.errors import EngineError, MessageTooLarge, NotLeaderOrFollower, Overloaded, StorageError
from kafkawire.http.kept_batches import CONTENT_TYPE, Edges
from kafkawire.http.topic_routes import topic_routes
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.requests.context import Operation, ResourceType, allow_all
from kafkawire.testing import EPOCH_MS
from testkit.asgi import get_response, posted
from testkit.cold_broker import WARM, Cold, cold_broker
from testkit.kept_batches import kept

TIMES = (EPOCH_MS, EPOCH_MS)


class RefusingAppender:
    """An appender of batches that refuses."""

    def __init__(self, error: EngineError) -> None:
        self._error = error

    async def append(self, partition: TopicIdPartition, records: memoryview, end_offset: int | None = None) -> Edges:
        raise self._error


def app_of(cold: Cold, authorizer: Any = allow_all, appender: Any = None) -> Starlette:
    broker = cold.opened.broker
    appender = appender or KeptBatches(broker.store)
    return Starlette(routes=topic_routes(broker.coordinator, broker.store, appender, authorizer, "", None))


async def sent(
    app: Starlette,
    cold: Cold,
    body: bytes | bytearray,
    topic: str = WARM,
    content_type: str = CONTENT_TYPE,
    peer: str = "127.0.0.1",
    **query: object,
) -> tuple[int, Any]:
    """Post a batch. Parameters that are not given have correct values."""
    right = {"partition": 0, "topic_id": cold.log(WARM).partition.topic_id.hex()}
    found = {name: value for name, value in {**right, **query}.items() if value is not None}
    status, text = await posted(app, f"/v1/topics/{topic}/batches", content_type, bytes(body), peer, **found)
    return status, json.loads(text)


def batch(base_offset: int, *values: bytes, **more: Any) -> bytearray:
    return kept(base_offset, *values, times_ms=TIMES, **more)


async def test_batches_are_appended_where_they_were() -> None:
    async with cold_broker() as cold:
        app, log = app_of(cold), cold.log(WARM)
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)
        two = batch(1, b"a") + batch(5, b"b", last_delta=3)
        assert await sent(app, cold, two) == (200, {"log_start": 0, "log_end": 9})
        assert await sent(app, cold, two) == (200, {"log_start": 0, "log_end": 9}), "they are there already"
        assert await sent(app, cold, batch(9, b"c"), log_end=9) == (200, {"log_start": 0, "log_end": 10})
        assert log.high_watermark == 10
        _, text = await get_response(app, f"/v1/topics/{WARM}/messages", **{"from": 0})
        assert [(one["offset"], one["value"]) for one in json.loads(text)["messages"]][1:] == [
            (1, "a"),
            (5, "b"),
            (9, "c"),
        ]


async def test_a_batch_that_does_not_continue_the_log_gets_the_log_end() -> None:
    async with cold_broker() as cold:
        app = app_of(cold)
        for body, query, reason in [
            (batch(0, b"a", b"b"), {}, "a batch from offset 0 on reaches below the log end 1"),
            (batch(1, b"a"), {"log_end": 0}, "the log end is 1, not 0"),
        ]:
            assert await sent(app, cold, body, **query) == (  # type: ignore[arg-type]
                409,
                {"error": reason, "code": "OFFSET_OUT_OF_RANGE", "log_end": 1},
            )


async def test_invalid_append_at_offset_requests_are_refused_with_a_reason() -> None:
    async with cold_broker() as cold:
        app, right = app_of(cold), batch(1, b"a")
        other = bytes(16).hex()
        for query, status, reason in [
            ({"content_type": "text/plain"}, 415, f"batches are {CONTENT_TYPE}"),
            ({"peer": "192.0.2.1"}, 403, "batches are accepted only from this machine"),
            ({"partition": None}, 400, "partition is missing"),
            ({"topic_id": None}, 400, "topic_id is missing"),
            ({"topic_id": "00"}, 400, "topic_id is not 32 hexadecimal digits"),
            ({"topic_id": " " * 32}, 400, "topic_id is not 32 hexadecimal digits"),
            ({"log_end": "x"}, 400, "log_end is not a number"),
            ({"acks": 1}, 400, "unknown parameter acks"),
            ({"topic": "none"}, 404, "there is no topic none"),
            ({"partition": 7}, 404, "warm has no partition 7"),
            ({"topic_id": other}, 409, "warm has another id"),
        ]:
            found, document = await sent(app, cold, right, **query)  # type: ignore[arg-type]
            assert (found, document["error"][: len(reason)]) == (status, reason)
        found, document = await sent(app, cold, batch(1, b"a", producer=(7, 0, 0)))
        assert (found, document["code"]) == (400, "INVALID_RECORD")
        assert cold.log(WARM).log_end_offset == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (MessageTooLarge("m"), 400, "MESSAGE_TOO_LARGE"),
        (NotLeaderOrFollower("m"), 503, "NOT_LEADER_OR_FOLLOWER"),
        (StorageError("m"), 503, "KAFKA_STORAGE_ERROR"),
        (Overloaded("m"), 503, "REQUEST_TIMED_OUT"),
    ],
)
async def test_engine_errors_are_returned_under_their_kafka_names(error: EngineError, status: int, code: str) -> None:
    async with cold_broker() as cold:
        app = app_of(cold, appender=RefusingAppender(error))
        assert await sent(app, cold, b"?") == (status, {"error": "m", "code": code})


@pytest.mark.parametrize(("missing", "reason"), [(Operation.WRITE, "written"), (Operation.ALTER, "altered")])
async def test_append_at_offset_requires_the_write_and_alter_rights(missing: Operation, reason: str) -> None:
    asked_for: list[tuple[Operation, ResourceType, str]] = []

    def authorizer(_: str, __: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        asked_for.append((operation, kind, name))
        return operation is not missing

    async with cold_broker() as cold:
        answer = await sent(app_of(cold, authorizer), cold, batch(1, b"a"))
        assert answer == (403, {"error": f"warm may not be {reason}"})
        assert asked_for[-1] == (missing, ResourceType.TOPIC, WARM)


async def test_internal_topics_are_written_by_the_broker_alone() -> None:
    async with cold_broker() as cold:
        await cold.client.call(FindCoordinatorRequest(key="group"), version=2)  # creates the internal topic
        answer = await sent(app_of(cold), cold, batch(0, b"a"), topic="__consumer_offsets")
        assert answer == (403, {"error": "__consumer_offsets is written by the broker alone"})


async def test_a_get_is_not_answered() -> None:
    async with cold_broker() as cold:
        status, _ = await get_response(app_of(cold), f"/v1/topics/{WARM}/batches")
        assert status == 405
