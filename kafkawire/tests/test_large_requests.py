"""Requests with so many elements that they are decoded beside the event loop: others go on, and nothing else
changes."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from engine.batches.batch import Record, build_batch
from kafkawire.deps import Deps
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests import dispatch
from kafkawire.requests.headers import encode_request
from kafkawire.testing import Client, MemoryDeps, OpenBroker, open_broker
from kafkawire.wire.message import ELEMENT_CAP, Message
from kafkawire.wire.primitives import uvarint

PARTITIONS = 3
FEW = {"offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0"}
LARGE = dispatch.INLINE_ELEMENTS_MAX + 1


@dataclass
class Held(MemoryDeps):
    """Decoding beside the event loop waits until the test lets it go on."""

    waiting: int = 0
    may_go_on: trio.Event = field(default_factory=trio.Event)

    def start_deps(self) -> Deps:
        return replace(super().start_deps(), decode_elsewhere=self.decode)

    async def decode(self, job: Callable[[], Any]) -> Any:
        self.waiting += 1
        await self.may_go_on.wait()
        self.waiting -= 1
        return job()


@asynccontextmanager
async def opened_on(deps: MemoryDeps) -> AsyncIterator[tuple[OpenBroker, Client]]:
    """A broker with a topic `t`, and a client that knows the coordinator of the group `g`."""
    async with open_broker(deps, **FEW) as opened:
        client = opened.connect()
        topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
        await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 6)
        await client.call(FindCoordinatorRequest(key="g", key_type=0), 3)
        await trio.testing.wait_all_tasks_blocked()  # the partitions are read
        yield opened, client


def commit(*offsets: int) -> OffsetCommitRequest:
    """A commit of several offsets of the same partition, one after the other."""
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=each) for each in offsets]
    topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)


def committed() -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])


def produce(*partitions: int, acks: int = -1) -> ProduceRequest:
    rows = [
        PartitionProduceData(index=each, records=memoryview(build_batch([Record(value=b"%d" % each)])))
        for each in partitions
    ]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=rows)])


def names(random: Random) -> list[str]:
    return [f"unknown-{random.randrange(10**6)}" for _ in range(4)]


def some_requests(random: Random) -> list[tuple[Message, int]]:
    """Requests with one stage and with two, with a few elements each, in a random order."""
    spread = [random.randrange(PARTITIONS + 1) for _ in range(4)]
    asked: list[tuple[Message, int]] = [
        (MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in ["t", *names(random)]]), 3),
        (DeleteTopicsRequest(topic_names=names(random), timeout_ms=1_000), 5),
        (produce(*range(PARTITIONS)), 9),
        (produce(*range(PARTITIONS), acks=1), 7),
        (commit(*(random.randrange(1_000) for _ in range(4))), 7),
        (committed(), 5),
        (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(
                        name="t", partitions=[ListOffsetsPartition(partition_index=each) for each in spread]
                    )
                ]
            ),
            5,
        ),
        (
            FetchRequest(
                max_wait_ms=0,
                topics=[
                    FetchTopic(
                        topic="t",
                        partitions=[FetchPartition(partition=each, partition_max_bytes=99) for each in spread],
                    )
                ],
            ),
            12,
        ),
    ]
    return random.sample(asked, len(asked))


@pytest.mark.parametrize("seed", range(10))
async def test_replies_are_those_of_requests_that_are_decoded_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests are sent together: their order is kept, wherever each is decoded."""
    replies = []
    for inline_max in (ELEMENT_CAP, 2 + seed % 3):
        monkeypatch.setattr(dispatch, "INLINE_ELEMENTS_MAX", ELEMENT_CAP)
        async with opened_on(MemoryDeps(seed)) as (_, client):
            monkeypatch.setattr(dispatch, "INLINE_ELEMENTS_MAX", inline_max)
            requests = some_requests(Random(seed))
            for request, version in requests:
                await client.send(request, version=version)
            replies.append([await client.receive() for _ in requests])
    assert replies[0] == replies[1]


async def test_other_connections_are_served_while_a_large_request_is_decoded() -> None:
    deps = Held()
    async with opened_on(deps) as (opened, client):
        topics = [MetadataRequestTopic(name="t")] * LARGE
        await client.send(MetadataRequest(topics=topics), version=3)
        await trio.testing.wait_all_tasks_blocked()
        other = opened.connect()
        for _ in range(100):
            await other.call(ApiVersionsRequest(), 0)
        assert deps.waiting == 1
        deps.may_go_on.set()
        reply: Any = await client.receive()
        assert {topic.name for topic in reply.topics} == {"t"}


async def test_request_just_below_the_element_limit_is_decoded_at_once() -> None:
    async with opened_on(Held()) as (_, client):
        await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (LARGE - 1)), 3)


async def test_later_requests_on_the_connection_wait_for_a_large_request() -> None:
    """Both requests are two-stage: the smaller one has to find the offsets that the larger one has committed."""
    deps = Held()
    async with opened_on(deps) as (opened, client):
        await client.send(commit(*range(LARGE)), version=7)
        await client.send(committed(), version=5)
        await client.send(commit(7), version=7)
        await trio.testing.wait_all_tasks_blocked()
        reply: Any = await opened.connect().call(committed(), 5)
        assert reply.topics[0].partitions[0].committed_offset == -1
        deps.may_go_on.set()
        reply = await client.receive()
        assert len(reply.topics[0].partitions) == LARGE
        reply = await client.receive()
        assert reply.topics[0].partitions[0].committed_offset == LARGE - 1
        await client.receive()
        reply = await client.call(committed(), 5)
        assert reply.topics[0].partitions[0].committed_offset == 7


async def test_large_produce_with_acks_0_gets_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened_on(MemoryDeps()) as (_, client):
        monkeypatch.setattr(dispatch, "INLINE_ELEMENTS_MAX", 2)
        await client.send(produce(0, 1, acks=0), version=9)
        reply: Any = await client.call(produce(0), 9)
        assert reply.responses[0].partition_responses[0].base_offset == 1


HOSTILE = {
    "cut": bytes(encode_request(commit(*range(LARGE)), 8, 1, "c"))[:-1],
    "not UTF-8": encode_request(MetadataRequest(topics=[MetadataRequestTopic(name="tt")] * LARGE), 4, 1, "c").replace(
        b"tt", b"\xff\xff"
    ),
    "too many in all": encode_request(DeleteTopicsRequest(topic_names=[]), 5, 1, "c")[:-6]
    + uvarint(ELEMENT_CAP + 2)
    + b"\x02t" * (ELEMENT_CAP + 1)
    + bytes(5),
}


@pytest.mark.parametrize("frame", HOSTILE.values(), ids=HOSTILE)
async def test_large_frame_that_is_no_valid_request_closes_its_connection(frame: bytes) -> None:
    """The connection closes after the replies to earlier requests; later requests do not start."""
    deps = Held()
    async with opened_on(deps) as (opened, client):
        await client.send(ApiVersionsRequest(), version=0)
        await client.send_frame(frame)
        await client.send(commit(5), version=7)
        await trio.testing.wait_all_tasks_blocked()
        assert deps.waiting == 1
        deps.may_go_on.set()
        await client.receive()
        with pytest.raises(EOFError):
            await client.receive_frame()
        assert opened.broker.metrics.protocol_violations == 1
        reply: Any = await opened.connect().call(committed(), 5)
        assert reply.topics[0].partitions[0].committed_offset == -1


class Threaded(MemoryDeps):
    """Decoding in a thread, as in a real broker."""

    def start_deps(self) -> Deps:
        return replace(super().start_deps(), decode_elsewhere=trio.to_thread.run_sync)


def kept() -> int:
    """The count of request elements in memory."""
    return sum(isinstance(one, OffsetCommitRequestPartition) for one in gc.get_objects())


async def test_elements_of_an_invalid_large_request_are_freed_at_once() -> None:
    """The elements are freed at once, not by the garbage collector: 100,000 elements of each of many requests would
    take much memory."""
    async with opened_on(Threaded()) as (opened, _):
        gc.collect()
        gc.disable()
        try:
            before = kept()  # by other tests
            hostile = opened.connect()
            await hostile.send_frame(HOSTILE["cut"])
            with pytest.raises(EOFError):
                await hostile.receive_frame()
            assert kept() == before
        finally:
            gc.enable()


class Broken(MemoryDeps):
    def start_deps(self) -> Deps:
        return replace(super().start_deps(), decode_elsewhere=self.decode)

    async def decode(self, job: Callable[[], Any]) -> Any:
        raise RuntimeError("no thread can be started")


async def test_failed_start_of_the_decoding_thread_closes_only_its_connection() -> None:
    async with opened_on(Broken()) as (opened, client):
        await client.send(commit(*range(LARGE)), version=7)
        with pytest.raises(EOFError):
            await client.receive_frame()
        reply: Any = await opened.connect().call(committed(), 5)
        assert reply.topics[0].partitions[0].committed_offset == -1


async def test_a_connection_may_end_meanwhile() -> None:
    deps = Held()
    async with opened_on(deps) as (opened, client):
        await client.send(commit(*range(LARGE)), version=7)
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        await trio.sleep(3600)
        deps.may_go_on.set()
        reply: Any = await opened.connect().call(ApiVersionsRequest(), 0)
        assert reply.error_code == 0
