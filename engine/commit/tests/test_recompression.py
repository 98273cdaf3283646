"""Topics with a codec of their own: batches in another codec are recompressed, in order; nothing else changes."""

import gzip
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
import trio
import trio.testing

from engine.api import Leadership, PartitionLog, TopicIdPartition
from engine.batches.batch import BatchHeader, Codec, Record, RecordHeader, build_batch, has_right_crc, seal_batch
from engine.batches.codecs import compress
from engine.commit.record_validation import JOB_MAX_BYTES
from engine.errors import (
    EngineError,
    InvalidRecord,
    MessageTooLarge,
    OutOfOrderSequence,
    RecordListTooLarge,
    RecordsRefused,
    UnknownPartition,
)
from engine.log_config import CompressionType, LogConfig, TimestampType
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import SimulatedFileSystem
from engine.waiting_reads import EventClock
from testkit.logs import (
    NOW_MS,
    ORDERS,
    HeldWorkers,
    append,
    batch,
    batches_in,
    bytes_of,
    compressed_batch,
    open_orders,
    read,
    read_all,
    running,
)
from testkit.replicas import others

T = TypeVar("T")

OTHER = TopicIdPartition(bytes(16), "other", 0)
COMMITS, RECORD_VALIDATOR = 0, 2  # workers of the pool of a store with one log dir
TYPES = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}
RECORDS = [
    Record(b"key", b"value" * 50, NOW_MS - 20, (RecordHeader(b"h", b"1"), RecordHeader(b"h", None))),
    Record(None, b"value" * 50, NOW_MS - 10),
    Record(b"key", None, NOW_MS - 30),
]
LZ4 = LogConfig(compression_type=CompressionType.LZ4)


async def stored(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    return batches_in(bytes_of((await read(log, 0)).records))


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", TYPES)
async def test_every_codec_to_every_other(source: Codec, target: CompressionType) -> None:
    filesystem, codec = SimulatedFileSystem(), TYPES[target]
    config = LogConfig(compression_type=target)
    sent = compressed_batch(source, RECORDS)
    before = bytes(sent)
    async with running(filesystem) as store:
        log = await open_orders(store, config)
        await append(log, b"before")
        result = await log.append(memoryview(sent), acks=-1).wait()
        assert (result.base_offset, result.last_offset) == (1, 3)
        await append(log, b"after")
        await store.close()
    async with running(filesystem) as store:  # the written batches are read again
        log = await open_orders(store, config, leader_epoch=1)
        _, (header, records), (last, _) = await stored(log)
        assert records == [one._replace(offset_delta=delta) for delta, one in enumerate(RECORDS)]
        assert (header.attributes, header.base_offset, header.record_count) == (codec, 1, 3)
        assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS - 20, NOW_MS - 10)
        assert last.base_offset == 4
        data = bytes_of((await read(log, 1)).records)[: header.size_bytes]
        assert has_right_crc(memoryview(data), header)
        if source == codec:
            assert data[16:] == before[16:]  # behind base offset, length and epoch: as it came


async def test_topics_with_compression_type_producer_keep_the_codec_of_each_batch() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        for codec in Codec:
            await log.append(memoryview(compressed_batch(codec, RECORDS)), acks=-1).wait()
        assert [header.codec_id for header, _ in await stored(log)] == list(Codec)


@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP])
async def test_the_brokers_time(source: Codec) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, replace(LZ4, timestamp_type=TimestampType.LOG_APPEND_TIME))
        result = await log.append(memoryview(compressed_batch(source, RECORDS)), acks=-1).wait()
        assert result.log_append_time_ms == NOW_MS
        [(header, records)] = await stored(log)
        assert header.attributes == Codec.LZ4 | 1 << 3
        assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS - 20, NOW_MS)
        assert {one.timestamp_ms for one in records} == {NOW_MS}
        assert has_right_crc(memoryview(bytes_of((await read(log, 0)).records)), header)


async def test_an_idempotent_producer() -> None:
    """Sequences are kept, a duplicate gets its first offset, also one that follows at once, and a gap is refused."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LZ4)

        def send(sequence: int) -> memoryview:
            return memoryview(compressed_batch(Codec.GZIP, RECORDS, (7, 1, sequence)))

        pending = [log.append(send(sequence), acks=-1) for sequence in (0, 3, 0, 6)]
        assert [(await one.wait()).base_offset for one in pending] == [0, 3, 0, 6]
        assert (await log.append(send(3), acks=-1).wait()).base_offset == 3
        with pytest.raises(OutOfOrderSequence):
            await log.append(send(12), acks=-1).wait()
        found = [(one.producer_id, one.producer_epoch, one.base_sequence) for one, _ in await stored(log)]
        assert found == [(7, 1, 0), (7, 1, 3), (7, 1, 6)]


def packed(body: bytes, codec: Codec, count: int = 1) -> memoryview:
    """A batch with a records section that may be anything."""
    times, producer = (NOW_MS, NOW_MS), (-1, -1, -1)
    fields = {"base_offset": 0, "leader_epoch": -1, "attributes": int(codec), "record_count": count}
    return memoryview(seal_batch(body, timestamps_ms=times, producer=producer, **fields))


BODY = bytes(build_batch(RECORDS)[61:])
GROWING = memoryview(compressed_batch(Codec.ZSTD, [Record(b"key", bytes(2 << 20), NOW_MS)]))


@pytest.mark.parametrize(
    ("sent", "target", "error"),
    [
        (packed(compress(Codec.ZSTD, bytes(65 << 20)), Codec.ZSTD), CompressionType.LZ4, MessageTooLarge),
        (packed(compress(Codec.ZSTD, BODY)[:-1], Codec.ZSTD, 3), CompressionType.LZ4, InvalidRecord),
        (packed(gzip.compress(BODY) * 2, Codec.GZIP, 3), CompressionType.LZ4, InvalidRecord),
        (packed(BODY, Codec.GZIP, 3), CompressionType.LZ4, InvalidRecord),
        (packed(compress(Codec.GZIP, BODY), Codec.GZIP, 1000), CompressionType.LZ4, InvalidRecord),
        (GROWING, CompressionType.UNCOMPRESSED, MessageTooLarge),
    ],
    ids=["bomb", "cut", "two in one", "no gzip", "too few", "grows"],
)
async def test_a_batch_that_cannot_be_recompressed_or_grows_too_large_is_refused(
    sent: memoryview, target: CompressionType, error: type[EngineError]
) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(compression_type=target))
        with pytest.raises(error):
            await log.append(memoryview(bytearray(sent)), acks=-1).wait()
        await append(log, b"next")
        assert await read_all(log) == {0: b"next"}


async def test_no_batch_is_larger_than_a_segment() -> None:
    config = LogConfig(4 << 20, 1 << 20, compression_type=CompressionType.UNCOMPRESSED)
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        with pytest.raises(RecordListTooLarge):
            await log.append(memoryview(bytearray(GROWING)), acks=-1).wait()


@pytest.mark.parametrize(
    ("of_type", "fast", "thorough"),
    [
        (CompressionType.GZIP, {"gzip_level": 1}, {"gzip_level": 9}),
        (CompressionType.LZ4, {"lz4_level": 9}, {"lz4_level": 12}),
        (CompressionType.ZSTD, {"zstd_level": -131_072}, {"zstd_level": 22}),
    ],
)
async def test_levels(of_type: CompressionType, fast: dict[str, int], thorough: dict[str, int]) -> None:
    sizes = []
    for levels in (fast, thorough):
        async with running(SimulatedFileSystem()) as store:
            log = await open_orders(store, replace(LogConfig(compression_type=of_type), **levels))  # type: ignore[arg-type]  # all are numbers
            await append(log, b" ".join(b"%d" % (number * number) for number in range(5000)))
            [(header, _)] = await stored(log)
            sizes.append(header.size_bytes)
    assert sizes[0] > sizes[1]


async def test_order_stays_and_keys_are_required_too() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, replace(LZ4, requires_keys=True))
        sent = [
            batch(b"a"),
            compressed_batch(Codec.LZ4, [Record(b"k", b"b", NOW_MS)]),
            compressed_batch(Codec.GZIP, [Record(None, b"no key", NOW_MS)]),
            compressed_batch(Codec.GZIP, [Record(b"k", b"c", NOW_MS)]),
            batch(b"d"),
        ]
        offsets = []
        for one in [log.append(memoryview(each), acks=-1) for each in sent]:
            try:
                offsets.append((await one.wait()).base_offset)
            except RecordsRefused:
                offsets.append(-1)
        assert offsets == [0, 1, -1, 2, 3]
        assert list((await read_all(log)).values()) == [b"a", b"b", b"c", b"d"]
        assert {header.codec_id for header, _ in await stored(log)} == {Codec.LZ4}


async def test_recompression_delays_only_its_partition_and_a_new_codec_applies_to_later_appends() -> None:
    pool = HeldWorkers()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log, other = await open_orders(store, LZ4), await store.open_partition(OTHER, LogConfig(), 0)
        pool.held.add(RECORD_VALIDATOR)
        first = log.append(memoryview(batch(b"first")), acks=-1)
        await append(other, b"other")
        await open_orders(store)
        second = log.append(memoryview(batch(b"second")), acks=-1)
        await trio.testing.wait_all_tasks_blocked()
        assert not first.is_settled
        assert not second.is_settled
        pool.release()
        assert [(await one.wait()).base_offset for one in (first, second)] == [0, 1]
        assert [header.codec_id for header, _ in await stored(log)] == [Codec.LZ4, Codec.NONE]


async def test_an_append_waiting_for_recompression_is_refused_when_its_partition_is_deleted() -> None:
    pool = HeldWorkers()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, LZ4)
        pool.held.add(RECORD_VALIDATOR)
        pending = log.append(memoryview(batch(b"v")), acks=-1)
        await store.delete_partition(ORDERS)
        pool.release()
        with pytest.raises(UnknownPartition):
            await pending.wait()


async def test_a_closing_store_finishes_appends_that_wait_for_recompression() -> None:
    pool = HeldWorkers()
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, LZ4)
        pool.held.add(RECORD_VALIDATOR)
        pending = log.append(memoryview(batch(b"v")), acks=-1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.close)
            await trio.testing.wait_all_tasks_blocked()
            pool.release()
        assert (await pending.wait()).base_offset == 0


@pytest.mark.parametrize("config", [LZ4, LogConfig(requires_keys=True)])
async def test_examined_batches_are_written_though_no_replica_fetches(config: LogConfig) -> None:
    """Each batch fills a job. A job waits for the commit batch of the job before the last one, not for the high
    watermark."""
    config = replace(config, max_message_size_bytes=2 * JOB_MAX_BYTES)
    large = compressed_batch(Codec.GZIP, [Record(b"k", Random(1).randbytes(JOB_MAX_BYTES), NOW_MS)])
    async with running(SimulatedFileSystem()) as store:
        [log] = await store.open_partitions([Leadership(ORDERS, config, 1, others(1, 2))])
        assert isinstance(log, Partition)
        pending = [log.append(memoryview(bytearray(large)), acks=-1) for _ in range(6)]
        await trio.testing.wait_all_tasks_blocked()
        assert log.log_end_offset == 6
        assert not any(one.is_settled for one in pending)
        follower_fetches(log, offset=6)
        assert [(await one.wait()).base_offset for one in pending] == list(range(6))


def follower_fetches(log: Partition, offset: int) -> None:
    """Let the leader receive a Fetch of a follower that has all records below `offset`."""
    log.followers.fetched(
        2, 0, leader_epoch=1, offset=offset, last_epoch=1, log_start_offset=0, as_of=EventClock(lambda: NOW_MS).next()
    )


async def test_at_most_two_recompressed_batches_are_in_memory_while_the_disk_is_busy() -> None:
    """Each batch fills a job: while commit batches wait for the disk, two recompressed batches are in memory, and the
    others as they came."""
    pool = HeldWorkers()
    config = LogConfig(compression_type=CompressionType.UNCOMPRESSED, max_message_size_bytes=2 * JOB_MAX_BYTES)
    large = Record(b"k", bytes(JOB_MAX_BYTES), NOW_MS)
    async with running(SimulatedFileSystem(), pool=pool) as store:
        log = await open_orders(store, config)
        pool.started.clear()
        pool.held.add(COMMITS)
        pending = [log.append(memoryview(compressed_batch(Codec.ZSTD, [large])), acks=-1) for _ in range(6)]
        await trio.testing.wait_all_tasks_blocked()
        assert pool.started.count(RECORD_VALIDATOR) == 2
        pool.release()
        assert [(await one.wait()).base_offset for one in pending] == list(range(6))
        assert store.has_room
        assert store._dirs[0].commit_log.budget.used_bytes == 0
