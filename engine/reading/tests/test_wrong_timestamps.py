"""Batches with a wrong maximum timestamp: a produced one is corrected, a stored one counts with its records."""

import errno
from collections.abc import Sequence
from functools import partial

import pytest

from engine.api import Isolation, OffsetSpec, PartitionLog, RecordFilter
from engine.batches.batch import Codec, Record, has_right_crc, parse_header, stamp
from engine.batches.codecs import decompress
from engine.batches.record_checks import VALIDATED_AT_ONCE_MAX
from engine.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from engine.log_config import CompressionType, LogConfig, TimestampType
from engine.partitions.partition import Partition
from engine.testing.simulated_disk import Fault, SimulatedFileSystem
from testkit.logs import (
    NOW_MS,
    batch,
    batches_in,
    bytes_of,
    compressed_batch,
    found,
    log_bytes,
    open_orders,
    read,
    records_in,
    running,
)
from testkit.replicas import following
from testkit.wrong_timestamps import stored_as_sent, with_max_timestamp

EVERYTHING = Isolation.READ_UNCOMMITTED
SMALL = LogConfig(segment_size_bytes=150)  # a batch
COUNTS = [2, VALIDATED_AT_ONCE_MAX + 1]


def sarama(codec: Codec = Codec.NONE, count: int = 2, first_ms: int = NOW_MS) -> memoryview:
    """A batch as sarama sends it; the second record has the greatest timestamp."""
    times = [first_ms, first_ms + 7, *[first_ms + 1] * (count - 2)]
    return with_max_timestamp(compressed_batch(codec, [Record(b"k", b"v", at, (), n) for n, at in enumerate(times)]))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(requires_keys=True),
        LogConfig(index_keys=True),
        LogConfig(compression_type=CompressionType.GZIP),
    ],
    ids=["plain", "compacted", "with an index of keys", "of one codec"],
)
async def test_a_produced_batch_gets_the_greatest_timestamp_of_its_records(
    config: LogConfig, codec: Codec, count: int
) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        await log.append(sarama(codec, count), acks=-1).wait()
        stored = memoryview(bytes_of((await read(log, 0)).records))
        header = parse_header(stored)
        assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS, NOW_MS + 7)
        assert has_right_crc(stored, header)
        assert [one.timestamp_ms for one in (await records_in(log)).values()][:2] == [NOW_MS, NOW_MS + 7]
        assert (await log.offset_for_timestamp(OffsetSpec.MAX_TIMESTAMP, EVERYTHING))[:2] == (1, NOW_MS + 7)
        assert (await log.offset_for_timestamp(NOW_MS + 2, EVERYTHING))[:2] == (1, NOW_MS + 7)


async def test_with_log_append_time_the_clock_counts() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
        await log.append(sarama(first_ms=NOW_MS + 9999), acks=-1).wait()
        [(header, _)] = batches_in(bytes_of((await read(log, 0)).records))
        assert (header.max_timestamp_ms, header.is_log_append_time) == (NOW_MS, True)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_the_checks_of_a_produced_batch_come_before_its_correction(codec: Codec) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, LogConfig(timestamp_after_max_ms=5, timestamp_before_max_ms=100))
        damaged = sarama(codec)
        damaged[-1] ^= 1
        with pytest.raises(CorruptMessage, match="CRC"):
            await log.append(damaged, acks=-1).wait()
        with pytest.raises(InvalidTimestamp, match=str(NOW_MS + 7)):
            await log.append(sarama(codec), acks=-1).wait()
        with pytest.raises(InvalidTimestamp, match=str(NOW_MS - 200)):
            await log.append(sarama(codec, first_ms=NOW_MS - 200), acks=-1).wait()
        cut = compressed_batch(codec, [Record(timestamp_ms=NOW_MS)])
        cut[61:64] = b"\xff\xff\xff"
        with pytest.raises(InvalidRecord):
            await log.append(with_max_timestamp(cut), acks=-1).wait()
        await log.append(sarama(codec, first_ms=NOW_MS - 2), acks=-1).wait()


async def test_an_idempotent_producer_is_known_by_the_time_of_its_records() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        sent = [
            with_max_timestamp(compressed_batch(Codec.NONE, [Record(timestamp_ms=NOW_MS)], (7, 0, 0))) for _ in range(2)
        ]
        results = [await log.append(one, acks=-1).wait() for one in sent]
        assert [one.base_offset for one in results] == [0, 0]
        assert results[1].log_append_time_ms == NOW_MS, "the timestamp of the original"


async def fill(log: PartitionLog, times_ms: Sequence[int]) -> None:
    for time_ms in times_ms:
        await log.append(sarama(first_ms=time_ms), acks=-1).wait()


TIMES = [NOW_MS, NOW_MS + 100, NOW_MS + 50, NOW_MS + 200]


async def answers(log: PartitionLog) -> list[object]:
    asked = [0, *(time + delta for time in sorted(TIMES) for delta in (0, 1, 7, 8)), OffsetSpec.MAX_TIMESTAMP]
    times = [await log.offset_for_timestamp(one, EVERYTHING) for one in asked]
    spans = [RecordFilter(None, start, start + 60) for start in range(NOW_MS - 60, NOW_MS + 260, 20)]
    return [times, [[one.offset for one in await found(log, span)] for span in spans]]


async def expected() -> list[object]:
    """The answers of a log with right headers."""
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, SMALL)
        for time_ms in TIMES:
            await log.append(memoryview(batch(b"v", b"v", timestamps_ms=[time_ms, time_ms + 7])), acks=-1).wait()
        return await answers(log)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_log_of_version_0_1_is_searched_by_the_times_of_its_records(is_clean: bool) -> None:
    filesystem = SimulatedFileSystem()
    with stored_as_sent():
        async with running(filesystem) as store:
            log = await open_orders(store, SMALL)
            await fill(log, TIMES)
            assert isinstance(log, Partition)
            assert {one.max_timestamp_ms for one in log.log.segments} == {-1}
            assert len(log.log.segments) == len(TIMES)
            if is_clean:
                await store.close()
    async with running(filesystem) as store:
        log = await open_orders(store, SMALL, 1)
        stored = bytes_of((await read(log, 0)).records)
        assert await answers(log) == await expected()
        assert bytes_of((await read(log, 0)).records) == stored, "the bytes stay"
        await store.close()
    filesystem.faults.append(Fault("read", errno.EIO, ".log", is_lasting=True))
    async with running(filesystem) as store:
        log = await open_orders(store, SMALL, 2)
        late = await log.offset_for_timestamp(NOW_MS + 300, EVERYTHING)
        assert late.offset == -1, "the index has the times: no segment is read"


async def test_a_segment_of_right_and_wrong_headers_has_the_times_of_all() -> None:
    """A follower of an older leader stores its bytes as they are."""
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await following(store)
        right, wrong = memoryview(batch(b"v", timestamps_ms=[NOW_MS])), sarama(first_ms=NOW_MS + 100)
        for offset, records in enumerate([right, wrong]):
            stamp(records, offset, 0)
            await log.replicate(records, begins_segment=False).wait()
        assert (log.log.active.max_timestamp_ms, log.log.end.max_timestamp_ms) == (NOW_MS + 107, NOW_MS + 107)
        assert log_bytes(filesystem, log.log) == bytes(right) + bytes(wrong), "the bytes stay as the leader has them"


async def test_records_without_timestamps_are_searched_once() -> None:
    filesystem = SimulatedFileSystem()
    async with running(filesystem) as store:
        log = await open_orders(store, SMALL)
        for _ in range(3):
            await log.append(memoryview(batch(b"v", b"v", timestamps_ms=[-1, -1])), acks=-1).wait()
        assert (await log.offset_for_timestamp(0, EVERYTHING)).offset == -1
        assert isinstance(log, Partition)
        assert not any(one.lacks_timestamps for one in log.log.segments)
        filesystem.faults.append(Fault("read", errno.EIO, ".log", is_lasting=True))
        assert (await log.offset_for_timestamp(0, EVERYTHING)).offset == -1


async def test_a_batch_too_large_to_decompress_is_found_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store)
        times = [NOW_MS, NOW_MS + 10]
        sent = [Record(b"k", bytes(1000), at, (), number) for number, at in enumerate(times)]
        await log.append(memoryview(compressed_batch(Codec.ZSTD, sent)), acks=-1).wait()
        monkeypatch.setattr("engine.logs.recovery.loading.decompress", partial(decompress, max_bytes=500))
        assert (await log.offset_for_timestamp(NOW_MS + 5, EVERYTHING))[:2] == (0, NOW_MS + 10)
        assert (await log.offset_for_timestamp(NOW_MS + 11, EVERYTHING)).offset == -1
