"""A broker with fast paths handles any Produce like one without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kafkawire.fast_path import fast_paths
from kafkawire.fast_path.produce_requests import FastProduce, FastProduceSeveral
from kafkawire.fast_path.tests.produce_traffic import ProduceTraffic
from kafkawire.fast_path.tests.two_brokers import FRAMES, SEED, serve_both, two_brokers
from kafkawire.handlers import API_TABLE
from kafkawire.messages.produce import API_KEY as PRODUCE
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.requests.headers import decode_request_header, encode_request
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import batch, join, open_handlers
from kafkawire.wire.tests.mutation import wound
from testkit.recorded_requests import recorded


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_produces_with_fast_paths_return_the_same_as_without(seed: int) -> None:
    draw = Random(seed)
    async with two_brokers() as (plain, fast):
        ids = {name: topic.topic_id for name, topic in plain.broker.cluster.image.topics.items()}
        assert ids == {name: topic.topic_id for name, topic in fast.broker.cluster.image.topics.items()}
        traffic = ProduceTraffic(draw, ids)
        number = valid = 0
        while number < FRAMES:
            frames = [traffic.frame() for _ in range(draw.choice((1, 1, 4)))]
            valid += len(frames)
            if draw.random() < 0.3:
                wounded = bytearray(frames[0])
                wound(wounded, draw)
                frames.append(bytes(wounded))
            number += len(frames)
            await serve_both((plain, fast), frames)
            if draw.random() < 0.01:
                for side in (plain, fast):
                    await side.broker.create(f"another-{number}")  # another image
        assert plain.state() == fast.state()
        assert fast.fast_paths[PRODUCE].taken >= valid / 2, (fast.fast_paths[PRODUCE].taken, valid)


async def test_a_produce_that_times_out_gets_the_reply_of_the_general_path() -> None:
    async with two_brokers() as sides:
        replies = []
        for side in sides:
            log = side.broker.log("plain")
            data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
            topics = [TopicProduceData(name="plain", topic_id=log.partition.topic_id, partition_data=data)]
            request = ProduceRequest(acks=-1, timeout_ms=10, topic_data=topics)
            async with side.broker.store._dirs[0].commit_log.committer.between_commit_batches():
                started = side.start(encode_request(request, 13, 7, "c"))
                assert not started.is_settled
                assert started.deadline_s == trio.current_time() + 0.01
                await trio.sleep(0.02)
                replies.append(join(started.reply()))
        assert replies[0] == replies[1]


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


@pytest.mark.sources
async def test_frames_that_say_the_same_share_a_template_and_there_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkawire.fast_path.prefix_cache.CACHED_MAX", 5)
    async with two_brokers() as (_, side):
        fast_path: Any = side.fast_paths[PRODUCE].fast_path
        for number in range(50):
            data = [PartitionProduceData(index=number % 3, records=memoryview(batch(b"v")))]
            request = ProduceRequest(
                acks=1, timeout_ms=10, topic_data=[TopicProduceData(name="plain", partition_data=data)]
            )
            frame = bytearray(encode_request(request, 9, number, f"client-{number // 10}"))
            started = fast_path.take(frame, side.broker.connection, trio.current_time())
            assert isinstance(started, FastProduce if number % 10 else FastProduceSeveral)
            await answer(started)
        assert sum(map(len, fast_path._templates)) == 5
        frame = bytearray(encode_request(request, 9, 1, "one more"))
        await answer(fast_path.take(frame, side.broker.connection, trio.current_time()))
        assert sum(map(len, fast_path._templates)) == 1


async def test_requests_with_a_very_long_client_id_are_not_cached() -> None:
    async with two_brokers() as (_, side):
        fast_path: Any = side.fast_paths[PRODUCE].fast_path
        for client_id, kept in (("c" * 30_000, 0), ("c" * 400, 1)):
            for number in range(2):
                data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
                request = ProduceRequest(
                    acks=1, timeout_ms=10, topic_data=[TopicProduceData(name="plain", partition_data=data)]
                )
                await side.finish(side.start(encode_request(request, 9, number, client_id)))
            assert [sum(map(len, fast_path._templates)), sum(map(len, fast_path._prefixes))] == [kept, kept]
        assert side.fast_paths[PRODUCE].taken == 4


@pytest.mark.sources
async def test_a_bug_behind_the_fast_path_is_answered_as_one_behind_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("engine.partitions.leader.check_produced", fail)
    async with two_brokers() as sides:
        for side in sides:
            for acks in (-1, 0):
                data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
                topics = [TopicProduceData(name="plain", partition_data=data)]
                request = ProduceRequest(acks=acks, timeout_ms=10, topic_data=topics)
                await side.finish(side.start(encode_request(request, 9, 7, "c")))
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()
        assert sides[1].fast_paths[PRODUCE].taken == 1  # without a reply, the connection is closed


@pytest.mark.parametrize("partitions", [1, 2])
async def test_an_authorizer_that_fails_is_answered_as_by_the_general_path(partitions: int) -> None:
    async with two_brokers() as sides:
        for side in sides:
            data = [PartitionProduceData(index=index, records=memoryview(batch(b"v"))) for index in range(partitions)]
            request = ProduceRequest(
                acks=-1, timeout_ms=10, topic_data=[TopicProduceData(name="plain", partition_data=data)]
            )
            await side.finish(side.start(encode_request(request, 9, 7, "c")))  # learned
            side.authorizer.is_broken = True
            await side.finish(side.start(encode_request(request, 9, 7, "c")))
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].outcomes[0] != sides[0].outcomes[1]
        assert sides[1].fast_paths[PRODUCE].taken == 2


async def test_requests_as_clients_send_them_take_the_fast_path() -> None:
    async with open_handlers() as broker:
        await broker.create("plain", 16)
        image = broker.cluster.real.image
        topic = image.topics["plain"]
        asked = [(frame, ProduceRequest.decode(frame, version, start)) for frame, version, start in produce_frames()]
        names = {one.name: topic for _, request in asked for one in request.topic_data}
        ids = {one.topic_id: topic for _, request in asked for one in request.topic_data}
        cluster: Any = SimpleNamespace(image=replace(image, topics=names, topics_by_id=ids))
        fast_path = fast_paths(replace(broker.interfaces, cluster=cluster), API_TABLE)[PRODUCE]
        of_several = 0
        for frame, request in asked:
            assert fast_path.take(frame, broker.connection, trio.current_time()) is not None
            of_several += sum(len(one.partition_data) for one in request.topic_data) > 1
        assert len(asked) > 5 * of_several > 0


def produce_frames() -> Iterator[tuple[bytearray, int, int]]:
    """Recorded Produce frames with their versions and the positions of their bodies."""
    for one in recorded(PRODUCE):
        frame = bytearray(one.frame)
        header, body_start = decode_request_header(frame)
        yield frame, header.api_version, body_start


async def test_nothing_that_was_learned_outlives_a_change_of_the_cluster() -> None:
    async with two_brokers() as (_, side):
        fast_path: Any = side.fast_paths[PRODUCE].fast_path
        for topic in ("plain", "small"):
            data = [PartitionProduceData(index=0, records=memoryview(batch(b"v")))]
            topics = [TopicProduceData(name=topic, partition_data=data)]
            request = ProduceRequest(acks=1, timeout_ms=10, topic_data=topics)
            await side.finish(side.start(encode_request(request, 9, 1, topic)))
        assert sum(map(len, fast_path._templates)) == 2
        await side.broker.create("another")
        await side.finish(side.start(encode_request(request, 9, 2, "small")))
        assert sum(map(len, fast_path._templates)) == 1
