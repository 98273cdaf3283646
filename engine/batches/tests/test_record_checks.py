"""Topics that require keys: records without one are refused by number, and other batches are appended in order."""

import dataclasses
from functools import partial

import lz4.frame
import pytest

from engine.api import Isolation, Origin
from engine.batches.batch import Codec, Record, build_batch, parse_header, seal_batch
from engine.batches.codecs import compress, decompress
from engine.batches.record_checks import ERRORS_MAX, VALIDATED_AT_ONCE_MAX
from engine.errors import EngineError, InvalidRecord, MessageTooLarge, RecordsRefused
from engine.log_config import CompressionType, LogConfig, TimestampType
from engine.testing.simulated_disk import SimulatedFileSystem
from testkit.logs import NOW_MS, keyed_batch, open_orders, records_in, running
from testkit.wrong_timestamps import record_with_delta

KEYED = LogConfig(requires_keys=True)
MANY = VALIDATED_AT_ONCE_MAX + 1
KEYLESS = "Compacted topic cannot accept message without key in topic partition orders-0"


def of_keys(*keys: bytes | None, codec: Codec = Codec.NONE) -> memoryview:
    return memoryview(keyed_batch(*((key, b"value") for key in keys), codec=codec))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [2, MANY])
async def test_records_without_a_key_are_named(codec: Codec, count: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, KEYED)
        with pytest.raises(RecordsRefused) as refused:
            await log.append(of_keys(*[b"k"] * (count - 1), None, codec=codec), acks=-1).wait()
        assert refused.value.errors == [(count - 1, KEYLESS)]
        assert str(refused.value) == (
            "One or more records have been rejected due to 1 record errors in total, and only showing the first three "
            f"errors at most: [RecordError(batchIndex={count - 1}, message='{KEYLESS}')]"
        )
        assert (await log.append(of_keys(*[b"k"] * count, codec=codec), acks=-1).wait()).base_offset == 0


async def test_appends_keep_their_order_wherever_their_keys_are_checked() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, KEYED)
        batches = [of_keys(b"a"), of_keys(*[b"b"] * MANY), of_keys(*[None] * MANY), of_keys(b"c", codec=Codec.LZ4)]
        pending = [log.append(batch, acks=-1) for batch in [*batches, of_keys(b"d")]]
        offsets = []
        for one in pending:
            try:
                offsets.append((await one.wait()).base_offset)
            except RecordsRefused:
                offsets.append(-1)
        assert offsets == [0, 1, -1, 1 + MANY, 2 + MANY]
        assert [one.key for one in (await records_in(log)).values()] == [b"a", *[b"b"] * MANY, b"c", b"d"]


async def test_a_refused_batch_lists_at_most_errors_max_record_errors() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, KEYED)
        with pytest.raises(RecordsRefused, match=f"{ERRORS_MAX + 5} record errors") as refused:
            await log.append(of_keys(*[None] * (ERRORS_MAX + 5)), acks=-1).wait()
        assert len(refused.value.errors) == ERRORS_MAX
        assert str(refused.value).count("RecordError(") == 3


def with_wrong_delta() -> bytearray:
    batch = build_batch([Record(b"key", b"value"), Record(b"key", b"value")])
    second = batch.index(b"key", batch.index(b"key") + 1)
    batch[second - 2] += 2
    return batch


async def refused(batch: bytearray, config: LogConfig = KEYED) -> EngineError:
    header = parse_header(batch)
    resealed = seal_batch(
        bytes(batch[61:]),
        record_count=header.record_count,
        base_offset=0,
        leader_epoch=-1,
        attributes=header.attributes,
        timestamps_ms=(0, 0),
        producer=(-1, -1, -1),
    )
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        with pytest.raises(EngineError) as found:
            await log.append(memoryview(resealed), acks=-1).wait()
        return found.value


async def test_lies_are_told_where_records_are_looked_at() -> None:
    wrong_delta = await refused(with_wrong_delta())
    assert isinstance(wrong_delta, RecordsRefused)
    assert [one.number for one in wrong_delta.errors] == [1]
    cut = keyed_batch((b"key", b"value"), (b"key", b"value"))
    cut[61] += 2
    assert isinstance(await refused(cut), InvalidRecord)
    no_gzip = keyed_batch((b"key", b"value"), codec=Codec.GZIP)
    no_gzip[61] ^= 0xFF
    assert isinstance(await refused(no_gzip), InvalidRecord), "no client repeats it"


async def test_a_topic_with_an_index_of_keys_takes_no_lies_and_records_without_keys() -> None:
    indexed = LogConfig(index_keys=True)
    cut = keyed_batch((None, b"value"), (b"key", b"value"))
    cut[61] += 2
    assert isinstance(await refused(cut, indexed), InvalidRecord)
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, indexed)
        assert (await log.append(of_keys(None), acks=-1).wait()).base_offset == 0


async def test_topics_that_require_no_keys_accept_records_without_a_key() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, dataclasses.replace(KEYED, requires_keys=False))
        assert (await log.append(of_keys(None), acks=-1).wait()).base_offset == 0


@pytest.mark.parametrize("count", [2, MANY])
async def test_coordinator_batches_are_not_checked_for_keys(count: int) -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, KEYED)
        assert (await log.append(of_keys(*[None] * count), acks=-1, origin=Origin.COORDINATOR).wait()).base_offset == 0


async def test_a_coordinator_batch_is_compressed_with_the_codec_of_its_topic() -> None:
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, dataclasses.replace(KEYED, compression_type=CompressionType.LZ4))
        assert (await log.append(of_keys(b"a", b"b"), acks=-1, origin=Origin.COORDINATOR).wait()).base_offset == 0
        found = log.read(0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True)
        part = found.records[0]
        assert parse_header(part.file.read_at(part.position, part.size_bytes)).codec_id == Codec.LZ4


TO_GZIP = LogConfig(compression_type=CompressionType.GZIP)


@pytest.mark.parametrize("config", [KEYED, LogConfig(index_keys=True), TO_GZIP], ids=["keyed", "indexed", "gzip"])
async def test_records_too_large_to_decompress_are_too_large(
    config: LogConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No CORRUPT_MESSAGE, which clients repeat until delivery.timeout.ms."""
    monkeypatch.setattr("engine.batches.record_checks.decompress", partial(decompress, max_bytes=10_000))
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        bomb = keyed_batch((b"key", bytes(10_000)), codec=Codec.ZSTD)
        with pytest.raises(MessageTooLarge, match="10000 bytes when decompressed"):
            await log.append(memoryview(bomb), acks=-1).wait()


@pytest.mark.parametrize("config", [KEYED, TO_GZIP], ids=["keyed", "gzip"])
@pytest.mark.parametrize("kind", ["two frames", "linked blocks"])
async def test_lz4_frames_that_javas_clients_cannot_read_are_refused(config: LogConfig, kind: str) -> None:
    plain = keyed_batch((b"key", bytes(range(256)) * 1000), (b"key", b"two"))
    body, half = bytes(plain[61:]), (len(plain) - 61) // 2
    packed = {
        "two frames": compress(Codec.LZ4, body[:half]) + compress(Codec.LZ4, body[half:]),
        "linked blocks": lz4.frame.compress(body, block_linked=True),
    }[kind]
    batch = seal_batch(
        packed,
        record_count=2,
        base_offset=0,
        leader_epoch=-1,
        attributes=Codec.LZ4,
        timestamps_ms=(NOW_MS, NOW_MS),
        producer=(-1, -1, -1),
    )
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        with pytest.raises(InvalidRecord):
            await log.append(memoryview(batch), acks=-1).wait()
        assert log.log_end_offset == 0


@pytest.mark.parametrize("timestamp_type", TimestampType)
async def test_a_timestamp_of_more_than_64_bits_is_refused(timestamp_type: TimestampType) -> None:
    """A varint has up to 70 bits. Neither the greatest limit of a topic refuses it, nor LogAppendTime."""
    config = LogConfig(
        compression_type=CompressionType.GZIP, timestamp_type=timestamp_type, timestamp_after_max_ms=2**63 - 1
    )
    async with running(SimulatedFileSystem()) as store:
        log = await open_orders(store, config)
        batch = seal_batch(
            record_with_delta(2**63 - 1),
            record_count=1,
            base_offset=0,
            leader_epoch=-1,
            attributes=0,
            timestamps_ms=(NOW_MS, NOW_MS),
            producer=(-1, -1, -1),
        )
        with pytest.raises(InvalidRecord, match="64 bits"):
            await log.append(memoryview(batch), acks=-1).wait()
        assert (await log.append(of_keys(b"k"), acks=-1).wait()).base_offset == 0
