"""Append at offset: the offsets of the batches, refusals, and the state after crashes."""

import random
from contextlib import suppress

import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import EpochEnd, Isolation
from engine.append_at_offset import KeptBatches, LogEdges
from engine.batches.append_at_offset_checks import TOGETHER_MAX
from engine.batches.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    Record,
    build_batch,
    parse_header,
    seal_batch,
)
from engine.batches.codecs import compress
from engine.errors import (
    CorruptMessage,
    EngineError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    Overloaded,
    RecordListTooLarge,
    RecordsRefused,
    UnknownPartition,
)
from engine.log_config import CleanupPolicy, CompressionType, FlushPolicy, LogConfig, TimestampType
from engine.logs.segments.roll_policy import SEGMENT_OFFSETS_MAX
from engine.partitions.partition import Partition
from engine.store import SegmentStore
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.kept_batches import kept
from testkit.logs import (
    NOW_MS,
    ORDERS,
    SlowSyncs,
    append,
    batch,
    batches_in,
    bytes_of,
    keyed_batch,
    open_orders,
    options,
    read,
    read_all,
    running,
)

COMPACTED = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), requires_keys=True)


async def keep(store: SegmentStore, *batches: bytes | bytearray, end_offset: int | None = None) -> LogEdges:
    return await KeptBatches(store).append(ORDERS, memoryview(bytearray(b"".join(batches))), end_offset)


async def test_batches_are_found_where_they_were_with_the_epoch_of_their_leader() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, leader_epoch=5)
        assert await keep(store, kept(0, b"a", b"b"), kept(2, b"c")) == (0, 3)
        assert await keep(store, kept(3, b"d")) == (0, 4)
        assert await read_all(log) == {0: b"a", 1: b"b", 2: b"c", 3: b"d"}
        headers = [header for header, _ in batches_in(bytes_of((await read(log, 0)).records))]
        assert [(one.base_offset, one.leader_epoch) for one in headers] == [(0, 5), (2, 5), (3, 5)]
        assert (log.high_watermark, log.last_stable_offset) == (4, 4)


async def test_a_log_that_was_never_used_begins_where_its_first_batch_does() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        assert await keep(store, kept(1000, b"a")) == (1000, 1001)
        assert log.offset_of(-2, Isolation.READ_UNCOMMITTED).offset == 1000
        assert await read_all(log) == {1000: b"a"}
        assert (await append(log, b"b")).base_offset == 1001, "it goes on as any log"
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=1)
        assert (log.log_start_offset, await read_all(log)) == (1000, {1000: b"a", 1001: b"b"})


async def test_an_emptied_log_starts_again_at_the_first_batch_unless_it_knows_a_producer() -> None:
    """Retries are recognised by the producer's sequence, which must not be forgotten."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        await append(log, b"x", b"y")
        await log.delete_records(2)
        assert await keep(store, kept(50, b"a")) == (50, 51)
        await log.append(memoryview(keyed_batch((b"k", b"v"), producer=(7, 0, 0))), acks=-1).wait()
        await log.delete_records(52)
        assert await keep(store, kept(60, b"b")) == (52, 61)
        assert await read_all(log) == {60: b"b"}
        assert [one.producer_id for one in store.active_producers(ORDERS)] == [7]


async def test_batches_that_the_log_has_are_not_appended_again() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        batches = kept(10, b"a", b"b"), kept(14, b"c")
        assert await keep(store, *batches) == await keep(store, *batches) == (10, 15)
        assert await keep(store, *batches, kept(15, b"d")) == (10, 16)
        assert await keep(store, kept(3, b"deleted since")) == (10, 16)
        assert await read_all(log) == {10: b"a", 11: b"b", 14: b"c", 15: b"d"}


async def test_batches_that_the_log_has_are_acknowledged_when_they_are_durable() -> None:
    pool = SlowSyncs()
    async with running(SimulatedFileSystem(), pool=pool) as store, trio.open_nursery() as nursery:
        log = await open_orders(store)
        answers: list[LogEdges] = []

        async def ask() -> None:
            answers.append(await keep(store, kept(0, b"a")))

        pool.is_slow = True
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.log_end_offset, log.high_watermark, answers) == (1, 0, [])
        pool.is_slow = False
        for one in pool.started:
            one.report()
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [(0, 1), (0, 1)]


async def test_a_batch_is_refused_if_another_append_took_its_offsets_before_it_was_queued() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        assert isinstance(log, Partition)
        one = log.admit_kept(memoryview(kept(0, b"mine")))
        one.follows = 0
        theirs = log.append(memoryview(batch(b"theirs")), acks=-1)
        mine = log.queue(one)
        await theirs.wait()
        with pytest.raises(OffsetOutOfRange, match="by now"):
            await mine.wait()
        with pytest.raises(OffsetOutOfRange, match="the log end is 1, not 0"):
            await keep(store, kept(0, b"mine"), end_offset=0)
        assert await keep(store, kept(1, b"mine"), end_offset=1) == (0, 2)
        assert await read_all(log) == {0: b"theirs", 1: b"mine"}


async def test_gaps_between_batches_and_within_them_survive_a_crash() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store)
        await keep(store, kept(5, b"a", last_delta=4), kept(20, b"b"), kept(21, last_delta=8))
        assert (log.log_start_offset, log.log_end_offset) == (5, 30)
        assert await read_all(log) == {5: b"a", 20: b"b"}
        assert (await append(log, b"c")).base_offset == 30
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=1)
        assert await read_all(log) == {5: b"a", 20: b"b", 30: b"c"}
        assert await keep(store, kept(31, b"d")) == (5, 32)


async def test_a_segment_begins_where_the_one_before_ends_though_there_is_a_gap() -> None:
    filesystem = SimulatedFileSystem()
    small = LogConfig(segment_size_bytes=100)
    async with running(filesystem) as store:
        log = await open_orders(store, small)
        await keep(store, kept(0, b"a"), kept(7, b"b"), kept(9, b"c"))
        assert isinstance(log, Partition)
        assert [one.base_offset for one in log.log.segments] == [0, 1, 8]
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, small, leader_epoch=1)
        assert await read_all(log) == {0: b"a", 7: b"b", 9: b"c"}


@pytest.mark.parametrize(
    ("base_offset", "last_delta"), [(1, None), (0, 5), (2**40, None), (3, SEGMENT_OFFSETS_MAX), (2**31 + 1, None)]
)
async def test_a_batch_that_does_not_continue_the_log_is_refused(base_offset: int, last_delta: int | None) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        await append(log, b"x", b"y", b"z")
        with pytest.raises((OffsetOutOfRange, InvalidRecord)):
            await keep(store, kept(base_offset, b"a", b"b", b"c", last_delta=last_delta))
        assert await read_all(log) == {0: b"x", 1: b"y", 2: b"z"}


@pytest.mark.parametrize("base_offset", [0, 3, 4])
async def test_batches_of_one_request_ascend(base_offset: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        with pytest.raises(InvalidRecord):
            await keep(store, kept(0, b"a"), kept(4, b"b"), kept(base_offset, b"c"))
        assert log.log_end_offset == 0


def _with(position: int, value: int) -> bytes:
    data = kept(0, b"a")
    data[position] = value
    return bytes(data)


REFUSED: dict[str, tuple[bytes | bytearray, type[EngineError]]] = {
    "nothing": (b"", InvalidRecord),
    "half a header": (bytes(30), InvalidRecord),
    "cut": (kept(0, b"a")[:-1], InvalidRecord),
    "bytes behind": (kept(0, b"a") + b"?", InvalidRecord),
    "wrong crc": (_with(66, 0xFF), CorruptMessage),
    "magic 1": (_with(16, 1), InvalidRecord),
    "magic 3": (_with(16, 3), CorruptMessage),
    "no size": (_with(8, 0xFF), InvalidRecord),
    "codec 5": (kept(0, b"a", attributes=5), InvalidRecord),
    "transactional": (kept(0, b"a", attributes=TRANSACTIONAL_BIT), InvalidRecord),
    "a producer's": (kept(0, b"a", producer=(7, 0, 0)), InvalidRecord),
    "control": (kept(0, b"a", attributes=CONTROL_BIT), InvalidRecord),
    "unknown bit": (kept(0, b"a", attributes=1 << 7), InvalidRecord),
    "below zero": (kept(-1, b"a"), InvalidRecord),
    "beyond the last offset": (kept(2**63 - 1, b"a"), InvalidRecord),
    "more records than offsets": (kept(0, b"a", b"b", last_delta=0), InvalidRecord),
    "no offset at all": (kept(0, last_delta=-1), InvalidRecord),
    "late": (kept(0, b"a", times_ms=(NOW_MS, NOW_MS + 7_200_000)), InvalidTimestamp),
    "begins late": (kept(0, b"a", times_ms=(NOW_MS + 7_200_000, NOW_MS)), InvalidTimestamp),
    "many": (b"".join(kept(number, b"a") for number in range(TOGETHER_MAX + 1)), InvalidRecord),
    "large": (kept(0, bytes(1 << 20)), MessageTooLarge),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_invalid_batch_is_refused_with_its_error_and_the_log_stays_unchanged(name: str) -> None:
    records, error = REFUSED[name]
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        with pytest.raises(error):
            await keep(store, records)
        with pytest.raises(error):
            await keep(store, kept(100, b"right"), records or b"?")
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)


async def test_a_batch_must_fit_into_a_segment() -> None:
    async with running(SimulatedFileSystem()) as store:
        await open_orders(store, LogConfig(segment_size_bytes=100))
        with pytest.raises(RecordListTooLarge):
            await keep(store, kept(0, bytes(200)))


async def test_times_and_their_type_stay_as_they_are() -> None:
    """The timestamp type of the topic changes no batch; and a delete horizon is no timestamp of a record."""
    for kind in TimestampType:
        async with running(SimulatedFileSystem()) as store:
            log = await open_orders(store, LogConfig(timestamp_type=kind))
            horizon = kept(0, b"a", attributes=DELETE_HORIZON_BIT, times_ms=(NOW_MS + 86_400_000, NOW_MS))
            await keep(store, horizon, kept(1, b"b", attributes=LOG_APPEND_TIME_BIT, times_ms=(NOW_MS, NOW_MS - 5)))
            stored = bytes_of((await read(log, 0)).records)
            sent = horizon + kept(1, b"b", attributes=LOG_APPEND_TIME_BIT, times_ms=(NOW_MS, NOW_MS - 5))
            assert stored[17:] == bytes(sent[17 : len(horizon)]) + stored[len(horizon) : len(horizon) + 17] + bytes(
                sent[len(horizon) + 17 :]
            )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
async def test_a_compacted_topic_wants_keys_and_takes_gaps(codec: Codec) -> None:
    plain = build_batch([Record(b"a", b"1", NOW_MS), Record(b"b", b"2", NOW_MS, (), 1)])
    holes = bytes(plain[61:]).replace(b"\x00\x02\x02b", b"\x00\x0a\x02b")  # the second one's offset delta: 5
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, COMPACTED)
        for body, last_delta, is_right in [(holes, 5, True), (holes, 4, False), (bytes(plain[61:]), 1, True)]:
            records = seal_batch(
                compress(codec, body),
                record_count=2,
                base_offset=log.log_end_offset,
                leader_epoch=-1,
                attributes=codec,
                timestamps_ms=(NOW_MS, NOW_MS),
                producer=(-1, -1, -1),
                last_offset_delta=last_delta,
            )
            if is_right:
                await keep(store, records)
            else:
                with pytest.raises(RecordsRefused):
                    await keep(store, records)
        with pytest.raises(RecordsRefused, match="without key"):
            await keep(store, _at(keyed_batch((None, b"x")), log.log_end_offset))
        assert await read_all(log) == {0: b"1", 5: b"2", 6: b"1", 7: b"2"}


def _at(records: bytearray, base_offset: int) -> bytearray:
    records[:8] = base_offset.to_bytes(8, "big")
    return records


async def test_a_batch_is_not_compressed_anew() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(compression_type=CompressionType.ZSTD))
        await keep(store, kept(0, b"a", attributes=Codec.GZIP))
        assert parse_header(bytes_of((await read(log, 0)).records)).codec_id == Codec.GZIP


async def test_append_at_offset_without_the_partition_or_its_leadership_is_refused() -> None:
    async with running(SimulatedFileSystem()) as store:
        with pytest.raises(UnknownPartition):
            await keep(store, kept(0, b"a"))
        log = await open_orders(store)
        assert isinstance(log, Partition)
        log.follow(LogConfig(), 1)
        with pytest.raises(NotLeaderOrFollower):
            await keep(store, kept(0, b"a"))


async def test_batches_refused_by_a_full_queue_can_be_sent_again() -> None:
    async with running(SimulatedFileSystem(), options(queue_max_bytes=150)) as store:
        log = await open_orders(store)
        batches = [kept(number, b"x" * 30) for number in range(3)]
        with pytest.raises(Overloaded):
            await keep(store, *batches)
        assert log.log_end_offset == 1
        for number in range(3):
            await keep(store, batches[number])
        assert sorted(await read_all(log)) == [0, 1, 2]


async def test_appends_of_others_come_before_or_behind_and_take_no_place_of_a_batch() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        wanted: dict[int, bytes | None] = {(await append(log, b"produced")).base_offset: b"produced"}

        async def keep_some() -> None:
            for _ in range(20):
                offset = log.log_end_offset + 2
                with suppress(OffsetOutOfRange):
                    await keep(store, kept(offset, b"kept"), end_offset=offset - 2)
                    wanted[offset] = b"kept"

        async def produce_some() -> None:
            for _ in range(20):
                wanted[(await append(log, b"produced")).base_offset] = b"produced"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_some)
            nursery.start_soon(produce_some)
        assert await read_all(log) == wanted
        assert set(wanted.values()) == {b"kept", b"produced"}


@pytest.mark.parametrize("seed", range(25))
async def test_acknowledged_batches_survive_crashes_and_the_rest_can_be_sent_again(seed: int) -> None:
    """The log end alone tells which batches the log has: each offset has its record once."""
    rng = random.Random(seed)
    filesystem, sent, offset = SimulatedFileSystem(), list[bytes](), rng.choice((0, 0, 100))
    for _ in range(40):
        offset += rng.choice((0, 0, 0, 1, 9))
        values = [rng.randbytes(30)] * rng.randint(0, 3)
        last_delta = max(0, len(values) - 1) + rng.choice((0, 0, 4))
        sent.append(bytes(kept(offset, *values, last_delta=last_delta)))
        offset = parse_header(sent[-1]).next_offset
    wanted = _rows(sent)
    answered = 0
    for life in range(6):
        config = LogConfig(flush_policy=FlushPolicy.SYNC, segment_size_bytes=rng.choice((400, 1 << 20)))
        async with running(filesystem, options(journal_slot_size_bytes=rng.choice((8_192, 20_000)))) as store:
            log = await open_orders(store, config, life)
            assert log.log_end_offset >= answered
            end = log.log_end_offset
            assert await read_all(log) == {at: value for at, value in wanted.items() if at < end}
            await trio.sleep(rng.choice((0, 5)))
            while (remaining := _remaining(sent, log.log_end_offset)) and rng.random() < 0.8:
                with _patience(rng), suppress(OffsetOutOfRange):  # a cancelled append may still be on its way
                    answered = (await keep(store, *remaining[: rng.randint(1, 5)])).log_end_offset
            if rng.random() < 0.3:
                await store.close()
        filesystem.crash(rng)
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=9)
        await keep(store, *sent)
        assert await read_all(log) == wanted
        assert log.log_end_offset == offset


def _patience(rng: random.Random) -> trio.CancelScope:
    """A scope that is sometimes cancelled, as if the client were gone before the answer."""
    scope = trio.CancelScope()
    if rng.random() < 0.2:
        scope.cancel()
    return scope


def _remaining(sent: list[bytes], end_offset: int) -> list[bytes]:
    return [one for one in sent if parse_header(one).next_offset > end_offset]


def _rows(sent: list[bytes]) -> dict[int, bytes | None]:
    return {
        header.base_offset + one.offset_delta: one.value
        for header, records in batches_in(b"".join(sent))
        for one in records
    }


@settings(max_examples=40, deadline=None)
@given(
    first=st.sampled_from((0, 1, 1000)),
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=12),
    codec=st.sampled_from(tuple(Codec)),
    cut=st.integers(1, 6),
)
def test_each_offset_has_the_record_that_was_sent(
    first: int, steps: list[tuple[int, int, int]], codec: Codec, cut: int
) -> None:
    """Gaps before batches, records, and gaps at the ends of batches; in requests of any size, each of them twice."""
    sent, offset = list[bytes](), first
    for gap, count, more in steps:
        offset += gap
        values = [b"%d" % (offset + number) for number in range(count)]
        sent.append(bytes(kept(offset, *values, last_delta=max(0, count - 1) + more, attributes=codec)))
        offset = parse_header(sent[-1]).next_offset

    async def run() -> None:
        async with running(SimulatedFileSystem()) as store:
            log = await open_orders(store)
            for start in range(0, len(sent), cut):
                batches = sent[start : start + cut]
                assert await keep(store, *batches) == await keep(store, *batches)
            values = await read_all(log)
            assert values == _rows(sent)
            assert all(value == b"%d" % at for at, value in values.items())
            assert log.log_end_offset == offset

    trio.run(run)


async def test_a_leader_epoch_begins_at_its_election_though_its_first_batch_left_a_gap() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=1)
        for _ in range(3):
            await append(log, b"a")
        await trio.sleep(70)
        await open_orders(store, leader_epoch=2)
        await keep(store, kept(8, b"b"))
    filesystem.crash()
    async with running(filesystem) as store:
        log = await open_orders(store, leader_epoch=3)
        assert log.end_offset_for_epoch(1) == EpochEnd(1, 3)
        assert log.end_offset_for_epoch(2) == EpochEnd(2, 9)
