"""RecordBatch v2: what is built can be walked, what is broken is refused with Kafka's answer (RULES W4, W5)."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from engine.batch import (
    BatchHeader,
    Codec,
    ProduceLimits,
    Record,
    RecordHeader,
    build_batch,
    check_produced,
    clear_log_append_time,
    has_right_crc,
    parse_header,
    seal_batch,
    stamp,
    stamp_log_append_time,
    walk_records,
)
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
from engine.plain_batch import build_plain_batch

NOW_MS = 1_700_000_000_000
LIMITS = ProduceLimits(
    max_message_size_bytes=1_048_588,
    segment_size_bytes=1 << 30,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=3_600_000,
    is_log_append_time=False,
)

names = st.binary(max_size=20)
records_strategy = st.lists(
    st.builds(
        Record,
        key=st.none() | names,
        value=st.none() | st.binary(max_size=300),
        timestamp_ms=st.integers(0, 2**42),
        headers=st.lists(st.builds(RecordHeader, names, st.none() | names), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def one(**fields: int) -> bytearray:
    """A batch of one record with header fields overwritten and the CRC right."""
    arguments: dict[str, int] = {"record_count": 1, "base_offset": 0, "leader_epoch": -1, "attributes": 0}
    arguments.update((name, value) for name, value in fields.items() if name in arguments)
    timestamp_ms = fields.get("timestamp_ms", NOW_MS)
    producer = (fields.get("producer_id", -1), fields.get("producer_epoch", -1), fields.get("base_sequence", -1))
    body = build_batch([Record(b"k", b"v", timestamp_ms)])[61:]
    return seal_batch(body, timestamps_ms=(timestamp_ms, timestamp_ms), producer=producer, **arguments)


def patched(position: int, layout: str, value: int) -> bytearray:
    """A valid batch with bytes overwritten; the CRC is not mended."""
    batch = one()
    struct.pack_into(layout, batch, position, value)
    return batch


def check(batch: bytes | bytearray, *, limits: ProduceLimits = LIMITS, allow_zstd: bool = True) -> BatchHeader:
    return check_produced(memoryview(batch), limits, NOW_MS, allow_zstd=allow_zstd)


@given(records_strategy)
def test_built_batches_walk_back_to_their_records(records: list[Record]) -> None:
    batch = build_batch(records)
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert has_right_crc(memoryview(batch), header)
    walked = list(walk_records(header, bytes(batch[61:])))
    assert walked == [record._replace(offset_delta=delta) for delta, record in enumerate(records)]
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


def test_a_plain_batch_is_one_of_records_without_headers_of_one_time() -> None:
    pairs = [(b"key", b"value"), (b"gone", None), (b"", b""), (b"k" * 70, b"v" * 2_000)]
    records = [Record(key, value, NOW_MS) for key, value in pairs]
    assert build_plain_batch(pairs, NOW_MS) == build_batch(records)
    assert build_plain_batch(pairs[:1], NOW_MS) == build_batch(records[:1])


def test_a_valid_batch_passes() -> None:
    assert check(one()).record_count == 1
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
        pytest.param(one(attributes=1 << 4), InvalidTxnState, id="transactional without a transaction"),
        pytest.param(one(record_count=0), InvalidRecord, id="no records"),
        pytest.param(one(record_count=-5), InvalidRecord, id="negative count"),
        pytest.param(one(attributes=1 << 5), InvalidRecord, id="control batch"),
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


def test_stamps_lie_outside_the_crc() -> None:
    batch = one()
    stamp(memoryview(batch), 1234, 56)
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch, header.next_offset) == (1234, 56, 1235)
    assert has_right_crc(memoryview(batch), header)


def test_a_client_does_not_say_that_the_broker_set_the_time() -> None:
    batch = one(attributes=1 << 3)
    header = check(batch)
    cleared = clear_log_append_time(memoryview(batch), header)
    assert cleared == parse_header(batch)
    assert not cleared.is_log_append_time
    assert cleared.max_timestamp_ms == header.max_timestamp_ms
    assert has_right_crc(memoryview(batch), cleared)


def test_w5_log_append_time_recomputes_the_crc() -> None:
    batch = one(timestamp_ms=7)
    header = stamp_log_append_time(memoryview(batch), parse_header(batch), NOW_MS)
    assert parse_header(batch) == header
    assert header.is_log_append_time
    assert header.max_timestamp_ms == NOW_MS
    assert has_right_crc(memoryview(batch), header)
    [record] = walk_records(header, bytes(batch[61:]))
    assert record.timestamp_ms == NOW_MS


@given(st.binary(max_size=200), st.integers(1, 50))
def test_hostile_records_are_corrupt_and_nothing_else(body: bytes, record_count: int) -> None:
    header = parse_header(one())._replace(record_count=record_count)
    with pytest.raises(CorruptMessage):  # noqa: PT012 - a lucky body may be valid
        list(walk_records(header, body))
        raise CorruptMessage


@pytest.mark.parametrize("cut", range(1, 61))
def test_every_truncated_header_is_refused(cut: int) -> None:
    with pytest.raises((InvalidRecord, CorruptMessage)):
        check(one()[:cut])
