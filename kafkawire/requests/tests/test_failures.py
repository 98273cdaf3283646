"""A handler that fails: its request is answered, its connection goes on, and the log is not flooded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kafkawire.handlers import API_TABLE
from kafkawire.messages.delete_groups import DeleteGroupsRequest
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.api import Api
from kafkawire.requests.failures import LOGGED_PER_MINUTE_MAX, FailureLog
from kafkawire.requests.line_limit import MINUTE_S
from kafkawire.requests.pending_reply import PendingReply
from kafkawire.testing import OpenBroker, open_broker
from kafkawire.tests.harness import batch

METADATA, PRODUCE, HEARTBEAT = 3, 0, 12
FAILED = -1


def fail(*arguments: object) -> Any:
    raise ZeroDivisionError("a bug")


async def fail_later(context: object, request: object) -> Any:
    await trio.sleep(1)
    fail()


def fail_in_second_stage(context: object, request: object) -> Any:
    return PendingReply((), fail)


class NoMessage:
    encode = fail


def answer_nonsense(context: object, request: object) -> Any:
    return NoMessage()


class Later:
    """A future that is settled after one second."""

    def __init__(self) -> None:
        self._event = trio.Event()
        trio.lowlevel.spawn_system_task(self._settle)

    async def _settle(self) -> None:
        await trio.sleep(1)
        self._event.set()
        self._callback()

    @property
    def is_settled(self) -> bool:
        return self._event.is_set()

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    async def wait(self) -> None:
        await self._event.wait()


def fail_in_second_stage_later(context: object, request: object) -> Any:
    pending: Any = Later()
    return PendingReply([pending], fail)


def produce(topic: str = "t", acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch()))
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name="t")])


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """A function that replaces the handler of an API in brokers that are opened from now on."""

    def break_(name: str, handle: Any) -> None:
        table: tuple[Api, ...] = tuple(replace(api, handle=handle) if api.name == name else api for api in API_TABLE)
        monkeypatch.setattr("kafkawire.broker.API_TABLE", table)
        monkeypatch.setattr("kafkawire.broker.fast_paths", lambda *_: {})  # fast paths do not use the table

    return break_


def failures(opened: OpenBroker, api_key: int) -> int:
    return opened.broker.metrics.by_api[api_key].failures


@pytest.mark.parametrize("handle", [fail, fail_later, answer_nonsense])
async def test_a_handler_of_one_stage(breaks: Callable[[str, Any], None], handle: Any) -> None:
    breaks("metadata", handle)
    async with open_broker() as opened:
        await opened.broker.coordinator.create_topic("t", partition_count=1)
        client = opened.connect()
        with capture_logs() as logged:
            await client.send(produce(), version=9)
            await client.send(metadata(), version=9)
            await client.send(produce(), version=9)
            replies: list[Any] = [await client.receive() for _ in range(3)]
        assert [reply.responses[0].partition_responses[0].base_offset for reply in replies[::2]] == [0, 1]
        assert (replies[1].topics[0].error_code, replies[1].topics[0].name) == (FAILED, "t")
        assert failures(opened, METADATA) == 1
        (line,) = (one for one in logged if one["event"] == "request failed")
        assert isinstance(line["exc_info"], ZeroDivisionError)
        assert (line["api"], line["version"], line["client"], line["unlogged"]) == ("metadata", 9, "'test'", 0)


@pytest.mark.parametrize("handle", [fail, fail_in_second_stage, fail_in_second_stage_later])
async def test_a_handler_of_two_stages(breaks: Callable[[str, Any], None], handle: Any) -> None:
    breaks("heartbeat", handle)
    async with open_broker() as opened:
        await opened.broker.coordinator.create_topic("t", partition_count=1)
        client = opened.connect()
        await client.send(produce(), version=9)
        await client.send(HeartbeatRequest(group_id="g"), version=4)
        await client.send(DeleteGroupsRequest(groups_names=[]), version=2)
        await client.send(produce(), version=9)
        first, failed, other, last = [await client.receive() for _ in range(4)]
        offsets: list[Any] = [one.responses[0].partition_responses[0].base_offset for one in (first, last)]  # type: ignore[attr-defined]
        assert offsets == [0, 1]
        assert failed.error_code == FAILED  # type: ignore[attr-defined]
        assert other.results == []  # type: ignore[attr-defined]
        assert failures(opened, HEARTBEAT) == 1


@pytest.mark.parametrize("handle", [fail, fail_in_second_stage])
async def test_failed_produce_with_acks_0_closes_its_connection(
    breaks: Callable[[str, Any], None], handle: Any
) -> None:
    breaks("produce", handle)
    async with open_broker() as opened:
        client = opened.connect()
        reply: Any = await client.call(produce(), 9)
        assert reply.responses[0].partition_responses[0].error_code == FAILED
        await client.send(metadata(), version=9)
        await client.send(produce(acks=0), version=9)
        assert await client.receive()
        with pytest.raises(EOFError):
            await client.receive()
        assert failures(opened, PRODUCE) == 2


async def test_a_peer_cannot_flood_the_log(breaks: Callable[[str, Any], None]) -> None:
    breaks("metadata", fail)
    async with open_broker() as opened:
        client = opened.connect()
        count = 10 * LOGGED_PER_MINUTE_MAX
        with capture_logs() as logged:
            for _ in range(count):
                await client.call(metadata(), 9)
            assert len([one for one in logged if one["event"] == "request failed"]) == LOGGED_PER_MINUTE_MAX
            await trio.sleep(MINUTE_S)
            await client.call(metadata(), 9)
        assert logged[-1]["unlogged"] == count - LOGGED_PER_MINUTE_MAX
        assert failures(opened, METADATA) == count + 1


def test_failure_log_limits_its_lines_per_minute_and_counts_the_others() -> None:
    log = FailureLog()
    with capture_logs() as logged:
        for now_s in [0.0] * (LOGGED_PER_MINUTE_MAX + 3) + [MINUTE_S - 0.1, MINUTE_S, MINUTE_S]:
            log.note(ValueError(), now_s)
    assert [one["unlogged"] for one in logged] == [0] * LOGGED_PER_MINUTE_MAX + [4, 0]
