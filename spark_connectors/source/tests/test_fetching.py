"""The Fetch loop: each record of the range once, in order, or an error that names the missing offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Outcome
from engine.batches.batch import HEADER_SIZE_BYTES, parse_header, walk_records
from kafkawire.messages.fetch import FetchRequest, FetchResponse
from kafkawire.requests.errors import ErrorCode
from spark_connectors.offsets import TopicRecreated
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.source.errors import DataLoss, Unread
from spark_connectors.source.fetching import Piece, RangeFetch
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.source.tests.world import World
from spark_connectors.wire import BrokerError, GaveUp, TopicPartition
from spark_connectors.wire.tests.fakes import FakeBroker

PLACE = TopicPartition("t", 0)


@pytest.fixture
def world() -> World:
    """Ten batches of ten records each."""
    world = World()
    log = world.topic().logs[0]
    for first in range(0, 100, 10):
        log.append(*[b"%d" % number for number in range(first, first + 10)])
    return world


def pieces(world: World, start: int, end: int, is_earliest: bool = False, /, **options: str) -> Iterator[Piece]:
    chosen = world.options(**options)
    topic_id = world.topics["t"].id if "t" in world.topics else b"t" * 16
    wanted = OffsetRange(PLACE, topic_id, start, end, is_earliest)
    return RangeFetch(world.cluster(chosen), chosen, wanted, world.clock).pieces()


def offsets(found: Iterator[Piece]) -> list[int]:
    """Offsets of the records, also of those behind the range."""
    offsets: list[int] = []
    for piece in found:
        for batch in piece.batches:
            data = piece.records[batch.position : batch.end]
            rows = walk_records(parse_header(data), data[HEADER_SIZE_BYTES:])
            every = [batch.base_offset + row.offset_delta for row in rows]
            offsets += [one for one in every if one >= piece.start]
    return offsets


def fetches(world: World) -> list[Any]:
    return [request.topics[0].partitions[0] for request in world.broker.asked(FetchRequest)]


def test_a_range_is_read_from_the_batch_it_begins_in(world: World) -> None:
    assert offsets(pieces(world, 0, 100)) == list(range(100))
    assert offsets(pieces(world, 13, 14))[0] == 13
    assert offsets(pieces(world, 5, 5)) == []


def test_many_fetches_make_a_range(world: World) -> None:
    assert offsets(pieces(world, 0, 100, **{"kafka.max.partition.fetch.bytes": "500"})) == list(range(100))
    assert len(fetches(world)) > 4


def test_fetch_size_follows_the_size_of_received_records(world: World) -> None:
    world.topic().logs[0].append(b"x" * 200_000)
    for _ in range(20):
        world.topics["t"].logs[0].append(b"x" * 1000)
    list(pieces(world, 0, 21))
    sizes = [row.partition_max_bytes for row in fetches(world)]
    assert sizes[0] == 64 << 10  # for some tens of records of a kilobyte: the minimum
    assert sizes[1] == 20 * len(world.topics["t"].logs[0].batches[0]) * 5 // 4
    assert len(sizes) == 2


def test_gaps_are_no_loss(world: World) -> None:
    log = world.topics["t"].logs[0]
    del log.batches[3:6]
    log.leave_gap(50)
    log.append(b"behind")
    assert offsets(pieces(world, 0, 151)) == [*range(30), *range(60, 100), 150]
    assert offsets(pieces(world, 35, 70))[0] == 60


def test_truncated_batch_is_fetched_again_with_more_bytes(world: World) -> None:
    """Brokers return it complete since Kafka 0.10.1; a broker that truncates it is asked for more bytes."""
    whole = world.broker.handlers[FetchRequest]

    def cutting(request: Any) -> Any:
        reply: Any = whole(request)
        row = reply.responses[0].partitions[0]
        row.records = row.records[: request.topics[0].partitions[0].partition_max_bytes]
        return reply

    world.broker.handlers[FetchRequest] = cutting
    assert offsets(pieces(world, 0, 100, **{"kafka.max.partition.fetch.bytes": "50"})) == list(range(100))


def test_a_batch_that_is_never_whole(world: World) -> None:
    whole = world.broker.handlers[FetchRequest]

    def cut(request: Any) -> Any:
        reply: Any = whole(request)
        row = reply.responses[0].partitions[0]
        row.records = row.records[:70]
        return reply

    world.broker.handlers[FetchRequest] = cut
    with pytest.raises(MalformedBatch, match="t-0: no whole batch in"):
        list(pieces(world, 0, 100))


def test_damaged_bytes(world: World) -> None:
    log = world.topics["t"].logs[0]
    log.batches[2] = log.batches[2][:-1] + b"?"
    with pytest.raises(MalformedBatch, match="t-0 from offset 0 on: the CRC"):
        list(pieces(world, 0, 100))


def test_bytes_of_other_offsets(world: World) -> None:
    log = world.topics["t"].logs[0]
    log.read = lambda *_: log.batches[0]  # type: ignore[method-assign]
    with pytest.raises(MalformedBatch, match="t-0: asked for offset 50, given up to 10"):
        list(pieces(world, 50, 100))


# --- transactions


def test_read_committed_piece_has_its_aborted_transactions(world: World) -> None:
    log = world.topics["t"].logs[0]
    first = log.send(7, b"a", b"b")
    log.decide(7, Outcome.ABORT, first)
    log.decide(8, Outcome.COMMIT, log.send(8, b"c"))
    (piece,) = pieces(world, 90, log.end, **{"kafka.isolation.level": "read_committed"})
    assert piece.aborted == [(7, 100)]
    assert [one.is_abort_marker for one in piece.batches[1:]] == [False, True, False, False]
    (request,) = world.broker.asked(FetchRequest)
    assert request.isolation_level == 1
    (piece,) = pieces(world, 90, log.end)
    assert piece.aborted == []


# --- losses


def test_offsets_that_were_deleted(world: World) -> None:
    world.topics["t"].logs[0].delete_before(25)
    with pytest.raises(DataLoss, match=r"KAFKA_DATA_LOSS: cannot fetch offsets from 5 on.*there are offsets 25 to 100"):
        list(pieces(world, 5, 50))
    assert offsets(pieces(world, 5, 50, failOnDataLoss="false"))[:2] == [25, 26]  # within a batch
    assert offsets(pieces(world, 5, 25, failOnDataLoss="false")) == []
    assert offsets(pieces(world, 5, 50, True))[:2] == [25, 26]
    assert offsets(pieces(world, 5, 20, True)) == []


def test_offsets_that_are_deleted_meanwhile(world: World) -> None:
    found = pieces(world, 0, 100, failOnDataLoss="false", **{"kafka.max.partition.fetch.bytes": "300"})
    next(found)
    world.topics["t"].logs[0].delete_before(80)
    assert offsets(found) == list(range(80, 100))


def test_fetch_raises_data_loss_if_the_reply_begins_behind_the_requested_offset(world: World) -> None:
    """Only the reply shows it: offsets before its first batch are lost."""
    log = world.topics["t"].logs[0]
    log.delete_before(25)
    whole = world.broker.handlers[FetchRequest]

    def lenient(request: Any) -> Any:
        row = request.topics[0].partitions[0]
        row.fetch_offset = max(row.fetch_offset, 25)
        return whole(request)

    world.broker.handlers[FetchRequest] = lenient
    with pytest.raises(DataLoss):
        list(pieces(world, 5, 50))
    assert offsets(pieces(world, 24, 50))[0] == 24  # returned, so it was read before the deletion


def test_offsets_behind_the_end(world: World) -> None:
    with pytest.raises(DataLoss, match="there are offsets 0 to 100"):
        list(pieces(world, 150, 160))
    assert offsets(pieces(world, 150, 160, failOnDataLoss="false")) == []
    with pytest.raises(DataLoss, match="there is nothing from offset 100 on"):
        list(pieces(world, 90, 160, **{"kafkaConsumer.pollTimeoutMs": "3000"}))
    lenient = {"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": "3000"}
    assert offsets(pieces(world, 90, 160, **lenient)) == list(range(90, 100))


def test_an_offset_that_is_out_of_range_for_a_moment(world: World) -> None:
    world.fetch_errors = [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
    assert offsets(pieces(world, 90, 100)) == list(range(90, 100))
    world.fetch_errors = [ErrorCode.OFFSET_OUT_OF_RANGE] * 1000
    with pytest.raises(Unread, match="cannot fetch offset 90 of t-0 in 5 s"):
        list(pieces(world, 90, 100, **{"kafkaConsumer.pollTimeoutMs": "5000"}))


def test_records_that_come_late(world: World) -> None:
    """A new leader may not know its high watermark yet."""
    log = world.topics["t"].logs[0]
    whole, log.end = log.end, 95
    asked = world.broker.handlers[FetchRequest]

    def soon(request: Any) -> Any:
        reply = asked(request)
        log.end = whole if len(fetches(world)) > 3 else log.end
        return reply

    hidden, log.batches = log.batches, []
    log.batches = hidden[:9]
    world.broker.handlers[FetchRequest] = soon
    found = pieces(world, 90, 100)
    log.read = lambda *_: b"" if log.end == 95 else hidden[9]  # type: ignore[method-assign]
    assert offsets(found) == list(range(90, 100))


def test_records_that_do_not_come(world: World) -> None:
    world.topics["t"].logs[0].batches.clear()
    with pytest.raises(Unread, match="cannot fetch offset 90 of t-0 in 5 s"):
        list(pieces(world, 90, 100, **{"kafkaConsumer.pollTimeoutMs": "5000"}))


# --- topics


def test_a_topic_that_was_created_again(world: World) -> None:
    found = pieces(world, 0, 100)
    world.topic().logs[0].append(*[b"other"] * 200)
    with pytest.raises(TopicRecreated):
        list(found)
    options = world.options(failOnDataLoss="false")
    old = RangeFetch(world.cluster(), options, OffsetRange(PLACE, b"o" * 16, 0, 100), world.clock)
    with pytest.raises(TopicRecreated):
        list(old.pieces())


def test_a_topic_that_is_gone(world: World) -> None:
    lenient = {"failOnDataLoss": "false", "fetchOffset.numRetries": "2"}
    first, second = pieces(world, 0, 100), pieces(world, 0, 100, **lenient)
    del world.topics["t"]
    with pytest.raises(DataLoss, match="topic t is gone"):
        list(first)
    assert list(second) == []


def test_a_topic_id_that_becomes_known(world: World) -> None:
    world.fetch_errors = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID]
    assert offsets(pieces(world, 90, 100)) == list(range(90, 100))
    world.fetch_errors = [ErrorCode.UNKNOWN_TOPIC_ID] * 1000
    with pytest.raises(Unread):
        list(pieces(world, 90, 100, **{"kafkaConsumer.pollTimeoutMs": "5000"}))


# --- brokers


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_refusals_that_pass(world: World, code: ErrorCode) -> None:
    world.fetch_errors = [code] * 3
    assert offsets(pieces(world, 90, 100)) == list(range(90, 100))


def test_refusals_that_do_not_pass(world: World) -> None:
    world.fetch_errors = [ErrorCode.CORRUPT_MESSAGE]
    with pytest.raises(BrokerError, match="Fetch of t-0 from offset 90 on: CORRUPT_MESSAGE"):
        list(pieces(world, 90, 100))


def test_connections_that_are_lost(world: World) -> None:
    found = pieces(world, 0, 100, **{"kafka.max.partition.fetch.bytes": "300"})
    next(found)
    world.broker.next.extend([FakeBroker.BREAK, None, None, FakeBroker.BREAK_AFTER])
    assert offsets(found)[-1] == 99


def test_a_broker_that_does_not_come_back(world: World) -> None:
    found = pieces(world, 0, 100, **{"kafka.max.partition.fetch.bytes": "300", "kafkaConsumer.pollTimeoutMs": "5000"})
    next(found)
    world.broker.is_down = True
    begun_s = world.clock.now_s()
    with pytest.raises(GaveUp, match=r"offset \d+ of t-0: given up .*cannot connect to one:9092"):
        next(found)
    assert world.clock.now_s() - begun_s <= 5


def test_a_broker_that_throttles(world: World) -> None:
    whole, times = world.broker.handlers[FetchRequest], [1, 2]

    def throttling(request: Any) -> Any:
        return FetchResponse(throttle_time_ms=400) if times and times.pop() else whole(request)

    world.broker.handlers[FetchRequest] = throttling
    assert offsets(pieces(world, 90, 100)) == list(range(90, 100))
    assert world.clock.pauses_s == [pytest.approx(0.4), pytest.approx(0.4)]


# --- random faults


PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH,
)
DEEDS = st.sampled_from([None, None, FakeBroker.BREAK, FakeBroker.BREAK_AFTER, FakeBroker.SILENCE])


@given(
    parts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=20),
    cut=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    size_bytes=st.integers(50, 2000),
    codes=st.lists(st.sampled_from((ErrorCode.NONE, *PASSING)), max_size=8),
    deeds=st.lists(DEEDS, max_size=12),
)
def test_each_record_comes_once(
    parts: list[tuple[int, int]], cut: tuple[int, int], size_bytes: int, codes: list[ErrorCode], deeds: list[str | None]
) -> None:
    """Logs with random gaps, random sizes of fetches, and faults that pass."""
    world = World()
    log = world.topic().logs[0]
    there: list[int] = []
    for gap, count in parts:
        log.leave_gap(gap)
        base = log.append(*[b"v"] * count)
        there += range(base, base + count)
    start, end = sorted(one % (log.end + 1) for one in cut)
    world.fetch_errors = list(codes)
    world.broker.next.extend(deeds)
    options = {"kafka.max.partition.fetch.bytes": str(size_bytes), "kafka.request.timeout.ms": "1000"}
    found = offsets(pieces(world, start, end, **options))
    assert [one for one in found if one < end] == [one for one in there if start <= one < end]
    assert found == sorted(set(found))
