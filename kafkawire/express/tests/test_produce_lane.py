"""A broker with lanes and one without, given the same frames: nothing may tell them apart but what they cost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from engine.api import Isolation
from engine.batch import HEADER_SIZE_BYTES
from kafkawire.express import lanes
from kafkawire.express.produce_requests import ExpressProduce, ExpressProduceSeveral
from kafkawire.handlers import API_TABLE
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.api import Lane
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.dispatch import Dispatcher
from kafkawire.requests.headers import decode_request_header, encode_request
from kafkawire.requests.started import StartedRequest
from kafkawire.requests.tests.recorded import recorded
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import NOW_MS, Broker, batch, join, open_handlers
from kafkawire.wire.connection import ConnectionInfo, ProtocolViolation
from kafkawire.wire.tests.mutation import wound

SEED = int(os.environ.get("KAFKAWIRE_LANE_SEED", "1"))
FRAMES = int(os.environ.get("KAFKAWIRE_LANE_FRAMES", "3000"))
PRODUCE = 0
TOPICS = ("plain", "stamped", "small", "secret", "compacted")
PARTITIONS = 3


@dataclass
class CountingLane:
    """Counts what it takes."""

    lane: Lane
    taken: int = 0

    def take(self, frame: bytearray, connection: ConnectionInfo, now_s: float) -> StartedRequest | None:
        started = self.lane.take(frame, connection, now_s)
        self.taken += started is not None
        return started


@dataclass
class Side:
    """One of the two brokers, and all that it was asked and did."""

    broker: Broker
    dispatcher: Dispatcher
    asked: list[tuple[object, ...]]
    lane: CountingLane | None
    outcomes: list[object] = field(default_factory=list)

    def start(self, frame: bytes) -> Any:
        try:
            started = self.dispatcher.dispatch(bytearray(frame), self.broker.connection, trio.current_time())
        except ProtocolViolation as error:
            return str(error)
        return started

    async def finish(self, started: Any) -> None:
        if isinstance(started, str):
            self.outcomes.append(started)
            return
        try:
            reply = await answer(started)
        except ProtocolViolation as error:
            self.outcomes.append(str(error))
        else:
            self.outcomes.append(None if reply is None else join(reply))

    def state(self) -> dict[str, object]:
        """What is left of it all."""
        metrics = self.broker.interfaces.metrics
        counters = metrics.by_api[PRODUCE]
        found: dict[str, object] = {
            "asked": self.asked,
            "counters": (counters.requests, counters.failures, counters.request_size_bytes, counters.latency),
            "topics": {name: metrics.by_topic[name] for name in TOPICS},
            "violations": metrics.protocol_violations,
        }
        for name in self.broker.cluster.image.topics:
            for partition in range(len(self.broker.cluster.image.topics[name].partitions)):
                log = self.broker.log(name, partition)
                result = log.read(log.log_start_offset, 1 << 30, Isolation.READ_UNCOMMITTED, at_least_one=True)
                found[f"{name}-{partition}"] = (log.log_end_offset, log.high_watermark, join(result.records))
                found[f"producers of {name}-{partition}"] = self.broker.store.active_producers(log.partition)
        return found


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Side, Side]]:
    async with AsyncExitStack() as stack:
        sides = []
        for with_lanes in (False, True):
            asked: list[tuple[object, ...]] = []

            def authorize(
                principal: str,
                host: str,
                operation: Operation,
                kind: ResourceType,
                name: str,
                /,
                asked: list[tuple[object, ...]] = asked,
            ) -> bool:
                asked.append((principal, host, operation, kind, name))
                return name != "secret"

            broker = await stack.enter_async_context(open_handlers(authorizer=authorize))
            interfaces = replace(broker.interfaces, cluster=broker.cluster.real)  # one image as long as nothing changes
            lane = CountingLane(lanes(interfaces, API_TABLE)[PRODUCE]) if with_lanes else None
            dispatcher = Dispatcher(interfaces, API_TABLE, {PRODUCE: lane} if lane is not None else {})
            sides.append(Side(broker, dispatcher, asked, lane))
            await broker.create("plain", PARTITIONS)
            await broker.create("stamped", PARTITIONS, message_timestamp_type="LogAppendTime")
            await broker.create("small", PARTITIONS, max_message_bytes="200", flush_policy="async")
            await broker.create("secret", PARTITIONS)
            await broker.create("compacted", PARTITIONS, cleanup_policy="compact")
        yield sides[0], sides[1]


class Traffic:
    """Frames of a seed, such as clients send, and some that they would not."""

    def __init__(self, draw: Random, ids: dict[str, bytes]) -> None:
        self._draw = draw
        self._ids = ids
        self._sequences: dict[tuple[int, str, int], int] = {}
        self._correlation_id = 0

    def frame(self) -> bytes:
        draw = self._draw
        self._correlation_id += 1
        version = draw.choice((3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 13))
        topics = [self._topic() for _ in range(draw.choice((1,) * 8 + (2, 3)))]
        request = ProduceRequest(
            transactional_id=None if draw.random() < 0.98 else "tx",
            acks=draw.choice((-1, -1, -1, 1, 1, 0, 2) if draw.random() < 0.2 else (-1, 1)),
            timeout_ms=draw.choice((30_000, 30_000, 1500)),
            topic_data=topics if draw.random() < 0.98 else topics * draw.choice((0, 2)),
        )
        client = draw.choice(("producer-1", "producer-1", "", None, "x" * 200))
        return encode_request(request, version, self._correlation_id, client)

    def _topic(self) -> TopicProduceData:
        draw = self._draw
        topic = draw.choice(
            (*TOPICS, "plain", "plain", "plain", "plain", "unknown" if draw.random() < 0.3 else "plain")
        )
        count = draw.choice((1,) * 12 + (2, 3, 0))
        data = [self._partition(topic, draw.randrange(PARTITIONS + (draw.random() < 0.05))) for _ in range(count)]
        return TopicProduceData(name=topic, topic_id=self._ids.get(topic, bytes(16)), partition_data=data)

    def _partition(self, topic: str, index: int) -> PartitionProduceData:
        draw = self._draw
        options: dict[str, Any] = {}
        if draw.random() < 0.5:
            options = self._idempotent(topic, index)
        values = [draw.randbytes(draw.choice((0, 1, 10, 100, 300))) for _ in range(draw.randint(1, 3))]
        timestamp_ms = NOW_MS if draw.random() < 0.95 else 2**62
        records = batch(*values, timestamp_ms=timestamp_ms, **options)
        if draw.random() < 0.05:
            records[draw.randrange(len(records))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.03:
            records = records * 2
        if draw.random() < 0.03:
            del records[draw.randrange(HEADER_SIZE_BYTES + 5) :]
        return PartitionProduceData(index=index, records=memoryview(records))

    def _idempotent(self, topic: str, index: int) -> dict[str, Any]:
        producer_id = self._draw.randrange(3)
        key = producer_id, topic, index
        sequence = self._sequences.get(key, 0)
        if self._draw.random() < 0.1:
            return {"producer": (producer_id, 0, max(0, sequence - 1))}
        self._sequences[key] = sequence + 1
        return {"producer": (producer_id, 0, sequence)}


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_whatever_is_produced_a_broker_with_lanes_does_as_one_without(seed: int) -> None:
    draw = Random(seed)
    async with two_brokers() as (plain, express):
        ids = {name: topic.topic_id for name, topic in plain.broker.cluster.image.topics.items()}
        assert ids == {name: topic.topic_id for name, topic in express.broker.cluster.image.topics.items()}
        traffic = Traffic(draw, ids)
        number = valid = 0
        while number < FRAMES:
            frames = [traffic.frame() for _ in range(draw.choice((1, 1, 4)))]
            valid += len(frames)
            if draw.random() < 0.3:
                wounded = bytearray(frames[0])
                wound(wounded, draw)
                frames.append(bytes(wounded))
            number += len(frames)
            started = [[side.start(frame) for frame in frames] for side in (plain, express)]
            for side, requests in zip((plain, express), started, strict=True):
                for one in requests:
                    await side.finish(one)
            assert plain.outcomes[-len(frames) :] == express.outcomes[-len(frames) :], [one.hex() for one in frames]
            if draw.random() < 0.01:
                for side in (plain, express):
                    await side.broker.create(f"another-{number}")  # another image
        assert plain.state() == express.state()
        assert express.lane is not None
        assert express.lane.taken >= valid / 2, (express.lane.taken, valid)


async def test_a_batch_that_the_disk_does_not_take_in_time_is_told_as_by_the_general_path() -> None:
    async with two_brokers() as sides:
        told = []
        for side in sides:
            log = side.broker.log("plain")
            data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
            topics = [TopicProduceData(name="plain", topic_id=log.partition.topic_id, partition_data=data)]
            request = ProduceRequest(acks=-1, timeout_ms=10, topic_data=topics)
            async with side.broker.store._dirs[0].lane.between_rounds():
                started = side.start(encode_request(request, 13, 7, "c"))
                assert not started.is_settled
                assert started.deadline_s == trio.current_time() + 0.01
                await trio.sleep(0.02)
                told.append(join(started.reply()))
        assert told[0] == told[1]


async def test_a_deleted_topic_is_unknown_at_once_and_a_closed_log_is_told() -> None:
    async with two_brokers() as sides:
        for side in sides:
            log = side.broker.log("plain")
            data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
            topics = [TopicProduceData(name="plain", topic_id=log.partition.topic_id, partition_data=data)]
            frame = encode_request(ProduceRequest(acks=-1, timeout_ms=10, topic_data=topics), 9, 7, "c")
            await side.finish(side.start(frame))
            await side.broker.cluster.real.delete_topic("plain")
            await side.finish(side.start(frame))
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].outcomes[0] != sides[0].outcomes[1]


async def test_frames_that_say_the_same_share_a_template_and_there_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkawire.express.produce.TEMPLATES_MAX", 5)
    async with two_brokers() as (_, side):
        assert side.lane is not None
        lane: Any = side.lane.lane
        for number in range(50):
            data = [PartitionProduceData(index=number % 3, records=memoryview(batch(b"v")))]
            request = ProduceRequest(
                acks=1, timeout_ms=10, topic_data=[TopicProduceData(name="plain", partition_data=data)]
            )
            frame = bytearray(encode_request(request, 9, number, f"client-{number // 10}"))
            started = lane.take(frame, side.broker.connection, trio.current_time())
            assert isinstance(started, ExpressProduce if number % 10 else ExpressProduceSeveral)
            await answer(started)
        assert sum(map(len, lane._templates)) == 5
        frame = bytearray(encode_request(request, 9, 1, "one more"))
        await answer(lane.take(frame, side.broker.connection, trio.current_time()))
        assert sum(map(len, lane._templates)) == 1


async def test_a_bug_behind_the_lane_is_answered_as_one_behind_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("engine.partition.check_produced", fail)
    async with two_brokers() as sides:
        for side in sides:
            for acks in (-1, 0):
                data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
                topics = [TopicProduceData(name="plain", partition_data=data)]
                request = ProduceRequest(acks=acks, timeout_ms=10, topic_data=topics)
                await side.finish(side.start(encode_request(request, 9, 7, "c")))
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()
        assert sides[1].lane is not None
        assert sides[1].lane.taken == 1  # without a reply to tell it the connection is closed


async def test_requests_as_clients_send_them_take_the_lane() -> None:
    async with open_handlers() as broker:
        await broker.create("plain", 16)
        image = broker.cluster.real.image
        topic = image.topics["plain"]
        asked = [(frame, ProduceRequest.decode(frame, version, start)) for frame, version, start in produce_frames()]
        names = {one.name: topic for _, request in asked for one in request.topic_data}
        ids = {one.topic_id: topic for _, request in asked for one in request.topic_data}
        cluster: Any = SimpleNamespace(image=replace(image, topics=names, topics_by_id=ids))
        lane = lanes(replace(broker.interfaces, cluster=cluster), API_TABLE)[PRODUCE]
        of_several = 0
        for frame, request in asked:
            assert lane.take(frame, broker.connection, trio.current_time()) is not None
            of_several += sum(len(one.partition_data) for one in request.topic_data) > 1
        assert len(asked) > 5 * of_several > 0


def produce_frames() -> Iterator[tuple[bytearray, int, int]]:
    """With their versions, and where their bodies start."""
    for one in recorded(PRODUCE):
        frame = bytearray(one.frame)
        header, body_start = decode_request_header(frame)
        yield frame, header.api_version, body_start


async def test_nothing_that_was_learned_outlives_a_change_of_the_cluster() -> None:
    async with two_brokers() as (_, side):
        assert side.lane is not None
        lane: Any = side.lane.lane
        for topic in ("plain", "small"):
            data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
            topics = [TopicProduceData(name=topic, partition_data=data)]
            request = ProduceRequest(acks=1, timeout_ms=10, topic_data=topics)
            await side.finish(side.start(encode_request(request, 9, 1, topic)))
        assert sum(map(len, lane._templates)) == 2
        await side.broker.create("another")
        await side.finish(side.start(encode_request(request, 9, 2, "small")))
        assert sum(map(len, lane._templates)) == 1
