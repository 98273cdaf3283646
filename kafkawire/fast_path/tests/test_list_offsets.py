"""A broker with fast paths answers any request for start and end offsets like one without."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from engine.api import Marker, Outcome
from engine.batches.batch import TRANSACTIONAL_BIT
from engine.log_config import LogConfig
from kafkawire.fast_path.list_offsets import FastListOffsets
from kafkawire.fast_path.tests.produce_traffic import ProduceTraffic, mixed_frames
from kafkawire.fast_path.tests.two_brokers import FRAMES, PARTITIONS, SEED, TOPICS, Side, serve_both, two_brokers
from kafkawire.messages.list_offsets import API_KEY as LIST_OFFSETS
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.requests.headers import decode_response, encode_request
from kafkawire.tests.answers import answer
from kafkawire.tests.harness import NOW_MS, batch, join
from testkit.recorded_requests import recorded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NEWEST = 11
VERSIONS = range(1, NEWEST + 1)
LATEST, EARLIEST = -1, -2
FIRST_PRODUCER_ID = 4711


def request(*rows: ListOffsetsPartition, topic: str = "plain", **fields: Any) -> ListOffsetsRequest:
    topics = [ListOffsetsTopic(name=topic, partitions=list(rows))]
    return ListOffsetsRequest(replica_id=-1, topics=topics, **fields)


def row(timestamp: int, partition: int = 0, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)


class OffsetsTraffic:
    """Generator of frames. More than half of them are repetitions with another correlation id."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._sent: list[bytes] = []

    def frame(self) -> bytes:
        draw = self._draw
        if not self._sent or draw.random() < 0.4:
            client = draw.choice(("consumer-1",) * 5 + ("", None, "x" * 600))
            self._sent.append(encode_request(self._request(), draw.choice(VERSIONS), 0, client))
        sent = draw.choice(self._sent[-50:])
        return sent[:4] + draw.randbytes(4) + sent[8:]

    def _request(self) -> ListOffsetsRequest:
        draw = self._draw
        return ListOffsetsRequest(
            replica_id=draw.choice((-1, -1, -1, -2, 3)),
            isolation_level=draw.choice((0, 1, 1, 2)),
            topics=[self._topic() for _ in range(draw.choice((1,) * 6 + (2, 0)))],
            timeout_ms=draw.choice((0, 30_000, -1)),
        )

    def _topic(self) -> ListOffsetsTopic:
        draw = self._draw
        name = draw.choice(TOPICS) if draw.random() < 0.9 else draw.choice(("unknown", "", "t" * 300))
        count = draw.choice((1,) * 7 + (2, 3, 0, 40))
        first = draw.randrange(PARTITIONS)
        return ListOffsetsTopic(name=name, partitions=[self._row((first + each) % PARTITIONS) for each in range(count)])

    def _row(self, partition: int) -> ListOffsetsPartition:
        draw = self._draw
        is_usual = draw.random() < 0.95
        return row(
            draw.choice((LATEST, EARLIEST)) if is_usual else draw.choice((-3, -4, -5, -6, -7, 0, NOW_MS, 2**62)),
            partition if draw.random() < 0.98 else draw.choice((-1, PARTITIONS, 2**31 - 1)),
            draw.choice((-1, -1, 0)) if is_usual else draw.choice((1, 2, 7, -5)),
        )


class Events:
    """Events in partitions meanwhile: transactions begin and end, records are deleted, leaders change."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._open: list[tuple[str, int, int]] = []
        self._number = 0

    def next(self) -> Callable[[Side], Awaitable[object]]:
        """An event, to be applied to both brokers."""
        draw = self._draw
        self._number += 1
        number, topic, partition = self._number, draw.choice(("plain", "stamped")), draw.randrange(PARTITIONS)
        kind = draw.choice(("begin", "end", "delete", "lead"))
        if kind == "begin":
            producer_id = FIRST_PRODUCER_ID + number
            self._open.append((topic, partition, producer_id))
            records = batch(producer=(producer_id, 0, 0), attributes=TRANSACTIONAL_BIT)
            return lambda side: side.broker.log(topic, partition).append(memoryview(records[:]), acks=-1).wait()
        if kind == "end" and self._open:
            topic, partition, producer_id = self._open.pop(draw.randrange(len(self._open)))
            marker = Marker(producer_id, 0, 0, draw.choice(list(Outcome)))
            return lambda side: side.broker.log(topic, partition).end_transaction(marker).wait()
        if kind == "lead":
            return lambda side: lead(side, topic, partition, number)
        return lambda side: delete_half(side, topic, partition)


async def lead(side: Side, topic: str, partition: int, epoch: int) -> None:
    await side.broker.store.open_partition(side.broker.log(topic, partition).partition, LogConfig(), epoch)


async def delete_half(side: Side, topic: str, partition: int) -> None:
    log = side.broker.log(topic, partition)
    await log.delete_records((log.log_start_offset + log.high_watermark) // 2)


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_list_offsets_with_fast_paths_return_the_same_as_without(seed: int) -> None:
    draw = Random(seed)
    async with two_brokers() as sides:
        plain, fast = sides
        ids = {name: topic.topic_id for name, topic in plain.broker.cluster.image.topics.items()}
        offsets, produces, events = OffsetsTraffic(draw), ProduceTraffic(draw, ids), Events(draw)
        number = valid = unstable = 0
        while number < FRAMES:
            frames, count = mixed_frames(draw, offsets.frame, produces)
            valid += count
            number += len(frames)
            await serve_both(sides, frames)
            if draw.random() < 0.1:
                happen = events.next()
                for side in sides:
                    await happen(side)
            if draw.random() < 0.005:
                for side in sides:
                    await side.broker.cluster.real.delete_topic("small")
                    await side.broker.create("small", 2)
            logs = [plain.broker.log("plain", partition) for partition in range(PARTITIONS)]
            unstable += any(log.last_stable_offset < log.high_watermark for log in logs)
        assert plain.state() == fast.state()
        assert fast.fast_paths[LIST_OFFSETS].taken >= valid / 2, (fast.fast_paths[LIST_OFFSETS].taken, valid)
        assert unstable


@pytest.mark.parametrize("version", VERSIONS)
async def test_list_offsets_after_an_append_returns_the_new_end(version: int) -> None:
    async with two_brokers() as sides:
        for side in sides:
            frame = encode_request(request(row(LATEST), row(EARLIEST, 1)), version, 1, "me")
            await side.serve([frame])
            assert await side.broker.append("plain", b"v", partition=0) == 0
            await side.serve([frame])
            found = [decode_response(one, LIST_OFFSETS, version)[1] for one in side.outcomes]  # type: ignore[arg-type]
            assert [[one.offset for one in each.topics[0].partitions] for each in found] == [[0, 0], [1, 0]]  # type: ignore[attr-defined]
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[1].fast_paths[LIST_OFFSETS].taken == 2


async def test_a_topic_that_goes_between_arrival_and_turn_is_gone() -> None:
    async with two_brokers() as sides:
        replies = []
        for side in sides:
            started = side.start(encode_request(request(row(LATEST)), NEWEST, 1, "me"))
            await side.broker.cluster.real.delete_topic("plain")
            reply = await answer(started)
            assert reply is not None
            replies.append(join(reply))
        assert isinstance(started, FastListOffsets)
        assert replies[0] == replies[1]


async def test_a_bug_behind_the_fast_path_is_answered_as_one_behind_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("a bug")

    async with two_brokers() as sides:
        for version in (1, NEWEST):
            frame = encode_request(request(row(LATEST)), version, 7, "me")
            for side in sides:
                with monkeypatch.context() as patch:
                    patch.setattr("engine.partitions.partition.Partition.offset_of", fail)
                    await side.serve([frame])
                side.authorizer.is_broken = True
                await side.serve([frame])
                side.authorizer.is_broken = False
        assert sides[0].outcomes == sides[1].outcomes
        assert sides[0].state() == sides[1].state()
        assert sides[1].fast_paths[LIST_OFFSETS].taken == 4


async def test_requests_as_clients_send_them_take_the_fast_path() -> None:
    async with two_brokers() as (_, side):
        clients = set()
        for one in recorded(LIST_OFFSETS):
            fast_path = side.fast_paths[LIST_OFFSETS]
            assert fast_path.take(bytearray(one.frame), side.broker.connection, trio.current_time()) is not None, one
            clients.add(one.client)
        assert len(clients) == 7
