"""Produced batches that are broken, or not allowed, are refused with Kafka's errors (RULES W4)."""

import struct
from dataclasses import replace
from random import Random

import pytest
from crc32c import crc32c

from engine.api import Origin
from engine.batches.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Codec
from engine.batches.produce_checks import ProduceLimits, _checked, _usual_header, check_produced
from engine.errors import (
    CorruptMessage,
    EngineError,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from engine.tests.single_batches import NOW_MS, one, patched

LIMITS = ProduceLimits(
    max_message_size_bytes=1_048_588,
    segment_size_bytes=1 << 30,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=3_600_000,
    is_log_append_time=False,
)


def check(batch: bytes | bytearray, *, limits: ProduceLimits = LIMITS, allow_zstd: bool = True) -> BatchHeader:
    return check_produced(memoryview(batch), limits, NOW_MS, allow_zstd=allow_zstd)


@pytest.mark.parametrize("attributes", [CONTROL_BIT, CONTROL_BIT | TRANSACTIONAL_BIT])
def test_a_coordinator_may_append_control_batches_and_a_client_may_not(attributes: int) -> None:
    batch = one(attributes=attributes, producer_id=5, producer_epoch=0, base_sequence=-1)
    with pytest.raises(InvalidRecord):
        check(batch)
    header = check_produced(memoryview(batch), LIMITS, NOW_MS, allow_zstd=True, origin=Origin.COORDINATOR)
    assert (header.is_control, header.is_transactional) == (
        bool(attributes & CONTROL_BIT),
        bool(attributes & TRANSACTIONAL_BIT),
    )
    broken = bytearray(batch)
    broken[-1] ^= 1
    with pytest.raises(CorruptMessage):
        check_produced(memoryview(broken), LIMITS, NOW_MS, allow_zstd=True, origin=Origin.COORDINATOR)


def test_a_coordinator_batch_is_limited_by_segment_size_and_not_by_max_message_size() -> None:
    """The decision is already made: otherwise a lower max.message.bytes would stop the coordinator's partition."""
    batch = one()
    limits = replace(LIMITS, max_message_size_bytes=len(batch) - 1, segment_size_bytes=len(batch))
    with pytest.raises(MessageTooLarge):
        check(batch, limits=limits)
    check_produced(memoryview(batch), limits, NOW_MS, allow_zstd=True, origin=Origin.COORDINATOR)
    limits = replace(limits, segment_size_bytes=len(batch) - 1)
    with pytest.raises(RecordListTooLarge):
        check_produced(memoryview(batch), limits, NOW_MS, allow_zstd=True, origin=Origin.COORDINATOR)


def test_a_producer_batch_without_a_sequence_is_refused_from_every_origin() -> None:
    batch = one(attributes=TRANSACTIONAL_BIT, producer_id=5, producer_epoch=0, base_sequence=-1)
    for origin in Origin:
        with pytest.raises(InvalidRecord):
            check_produced(memoryview(batch), LIMITS, NOW_MS, allow_zstd=True, origin=origin)


def test_a_valid_batch_passes() -> None:
    assert check(one()).record_count == 1
    assert check(one(attributes=TRANSACTIONAL_BIT, producer_id=5, producer_epoch=0, base_sequence=0)).is_transactional
    assert check(one(producer_id=5, producer_epoch=0, base_sequence=0)).producer_id == 5


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        pytest.param(b"", InvalidRecord, id="no batch"),
        pytest.param(bytes(11), InvalidRecord, id="less than a length"),
        pytest.param(bytes(16), CorruptMessage, id="less than a batch"),
        pytest.param(one()[:16], InvalidRecord, id="cut before the magic"),
        pytest.param(patched(8, ">i", 50), CorruptMessage, id="length that cuts the batch short"),
        pytest.param(one() + one(), InvalidRecord, id="two batches"),
        pytest.param(one()[:-1], InvalidRecord, id="incomplete batch"),
        pytest.param(patched(16, ">b", 1), InvalidRecord, id="magic 1"),
        pytest.param(patched(16, ">b", 0), InvalidRecord, id="magic 0"),
        pytest.param(patched(16, ">b", 3), CorruptMessage, id="magic 3"),
        pytest.param(patched(8, ">i", 10), CorruptMessage, id="length below the header"),
        pytest.param(patched(8, ">i", -1), CorruptMessage, id="negative length"),
        pytest.param(patched(8, ">i", 2**31 - 1), InvalidRecord, id="length beyond the bytes"),
        pytest.param(patched(17, ">I", 1), CorruptMessage, id="wrong CRC"),
        pytest.param(patched(65, ">b", 1), CorruptMessage, id="flipped record byte"),
        pytest.param(one(record_count=2), InvalidRecord, id="more records than the bytes can hold"),
        pytest.param(one(record_count=2, attributes=Codec.GZIP), None, id="a compressed batch's count is believed"),
        pytest.param(one(attributes=TRANSACTIONAL_BIT), InvalidTxnState, id="transactional without a producer"),
        pytest.param(one(record_count=0), InvalidRecord, id="no records"),
        pytest.param(one(record_count=-5), InvalidRecord, id="negative count"),
        pytest.param(one(attributes=CONTROL_BIT), InvalidRecord, id="control batch"),
        pytest.param(one(attributes=5), InvalidRecord, id="unknown codec"),
        pytest.param(one(base_offset=1), InvalidRecord, id="base offset set"),
        pytest.param(one(producer_id=5, producer_epoch=0), InvalidRecord, id="producer without sequence"),
        pytest.param(one(timestamp_ms=NOW_MS + 3_600_001), InvalidTimestamp, id="too far in the future"),
        pytest.param(one(timestamp_ms=NOW_MS + 3_600_000), None, id="just within the future"),
        pytest.param(one(timestamp_ms=-1), None, id="no timestamp"),
    ],
)
def test_w4_rows(batch: bytearray, error: type[EngineError] | None) -> None:
    if error is None:
        check(batch)
    else:
        with pytest.raises(error):
            check(batch)


def test_w4_count_must_match_the_last_offset_delta() -> None:
    batch = one(record_count=3)
    struct.pack_into(">i", batch, 57, 2)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(InvalidRecord):
        check(batch)


def test_w4_zstd_only_where_the_request_version_allows_it() -> None:
    with pytest.raises(UnsupportedCompressionType):
        check(one(attributes=Codec.ZSTD), allow_zstd=False)
    assert check(one(attributes=Codec.ZSTD)).codec_id == Codec.ZSTD


@pytest.mark.parametrize(
    ("limit", "error"), [("max_message_size_bytes", MessageTooLarge), ("segment_size_bytes", RecordListTooLarge)]
)
def test_w4_sizes(limit: str, error: type[EngineError]) -> None:
    batch = one()
    fitting = dict.fromkeys(("max_message_size_bytes", "segment_size_bytes"), len(batch))
    rest = {"timestamp_before_max_ms": 1, "timestamp_after_max_ms": 1, "is_log_append_time": False}
    check(batch, limits=ProduceLimits(**fitting, **rest))  # type: ignore[arg-type]
    with pytest.raises(error):
        check(batch, limits=ProduceLimits(**{**fitting, limit: len(batch) - 1}, **rest))  # type: ignore[arg-type]


def test_timestamps_too_far_in_the_past() -> None:
    limits = ProduceLimits(1 << 20, 1 << 20, 1000, 1000, is_log_append_time=False)
    check(one(timestamp_ms=NOW_MS - 1000), limits=limits)
    with pytest.raises(InvalidTimestamp):
        check(one(timestamp_ms=NOW_MS - 1001), limits=limits)


@pytest.mark.parametrize("cut", range(1, 61))
def test_every_truncated_header_is_refused(cut: int) -> None:
    with pytest.raises((InvalidRecord, CorruptMessage)):
        check(one()[:cut])


def test_the_quick_check_accepts_only_batches_that_the_full_check_accepts() -> None:
    draw = Random(7)
    passed = 0
    for _ in range(20_000):
        batch = one(
            attributes=draw.choice((0, 0, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, -1)),
            base_offset=draw.choice((0, 0, 0, 0, 1, -1)),
            record_count=draw.choice((1, 1, 1, 0, 2, -1)),
            producer_id=draw.choice((-1, -1, 0, 5)),
            base_sequence=draw.choice((-1, 0, 1)),
            timestamp_ms=NOW_MS + draw.choice((0, 0, 3_600_000, 3_600_001, -5)),
        )
        if draw.random() < 0.1:
            batch[draw.randrange(len(batch))] ^= 1 << draw.randrange(8)
        limits = ProduceLimits(1 << 20, draw.choice((1 << 20, 60, len(batch))), 4, 3_600_000, draw.random() < 0.1)
        view, allow_zstd = memoryview(batch), draw.random() < 0.5
        header = _usual_header(view, limits, NOW_MS, Codec.ZSTD if allow_zstd else Codec.LZ4)
        if header is not None:
            passed += 1
            assert header == _checked(view, limits, NOW_MS, allow_zstd=allow_zstd, is_client=True)
    assert passed > 1000
    assert _usual_header(memoryview(one()), LIMITS, NOW_MS, Codec.LZ4) is not None
