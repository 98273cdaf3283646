"""RecordBatch v2: built batches can be walked, and the fields that the broker writes keep the CRC right (RULES W5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import (
    Record,
    RecordHeader,
    build_batch,
    clear_log_append_time,
    has_right_crc,
    parse_header,
    stamp,
    stamp_log_append_time,
    walk_records,
)
from engine.batches.plain_batch import build_plain_batch
from engine.errors import (
    CorruptMessage,
)
from engine.tests.single_batches import NOW_MS, one

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


def test_stamps_lie_outside_the_crc() -> None:
    batch = one()
    stamp(memoryview(batch), 1234, 56)
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch, header.next_offset) == (1234, 56, 1235)
    assert has_right_crc(memoryview(batch), header)


def test_a_client_does_not_say_that_the_broker_set_the_time() -> None:
    batch = one(attributes=1 << 3)
    header = parse_header(batch)
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
