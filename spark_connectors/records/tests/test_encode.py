"""Rows become the same bytes as the engine's batches, and no batch is too large."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.batches.batch import (
    TRANSACTIONAL_BIT,
    Record,
    RecordHeader,
    build_batch,
    parse_header,
    walk_records,
)
from spark_connectors.records.batches import batches_of, body_of
from spark_connectors.records.codecs import Codec
from spark_connectors.records.encode import BATCH_MAX_BYTES, Encoded, Rows, encode, stamp
from spark_connectors.records.errors import RecordTooLarge

BYTES = st.none() | st.binary(max_size=200)
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
RECORDS = st.lists(
    st.builds(
        Record,
        BYTES,
        BYTES,
        st.integers(0, 2**50),
        st.lists(st.builds(RecordHeader, st.text(max_size=5).map(str.encode), BYTES), max_size=3).map(tuple),
        st.just(0),
    ),
    min_size=1,
    max_size=40,
)


def rows_of(records: list[Record]) -> Rows:
    headers = [[{"key": one.key.decode(), "value": one.value} for one in record.headers] or None for record in records]
    return Rows(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array(headers, pa.list_(HEADER)),
        np.array([record.timestamp_ms for record in records], np.int64),
    )


def decoded(encoded: list[Encoded]) -> list[list[Record]]:
    """Records of each batch, without offsets. Common properties of batches are checked."""
    found = []
    for one in encoded:
        (batch,) = batches_of(one.batch)
        header = parse_header(one.batch)
        assert batch.records == one.records == batch.last_offset_delta + 1
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
        records = list(walk_records(header, bytes(body_of(memoryview(one.batch), batch))))
        assert [record.offset_delta for record in records] == list(range(len(records)))
        assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
        found.append([record._replace(offset_delta=0) for record in records])
    return found


@given(RECORDS)
@example([Record(timestamp_ms=1)] * 200)
def test_encoded_batch_equals_the_batch_of_the_engine(records: list[Record]) -> None:
    (found,) = encode(rows_of(records))
    assert found.batch == build_batch(records)


@given(RECORDS, st.sampled_from(Codec), st.integers(1, 2000), st.data())
def test_batches_in_order_by_group_and_below_the_limit(
    records: list[Record], codec: Codec, bytes_max: int, data: st.DataObject
) -> None:
    groups = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3)))
    found = encode(rows_of(records), codec=codec, bytes_max=bytes_max, groups=groups)
    by_group: list[list[Record]] = [[] for _ in range(len(groups) + 1)]
    for one, batch in zip(found, decoded(found), strict=True):
        by_group[one.group] += batch
        assert codec != Codec.NONE or len(one.batch) <= bytes_max or one.records == 1
    assert by_group == [records[first:end] for first, end in pairwise([0, *groups, len(records)])]


def test_batches_are_as_full_as_they_can_be() -> None:
    records = [Record(b"k", b"v" * 1000, timestamp_ms=1)] * 10_000
    sizes = [len(one.batch) for one in encode(rows_of(records))]
    assert all(0.99 * BATCH_MAX_BYTES < size <= BATCH_MAX_BYTES for size in sizes[:-1])


def test_nothing() -> None:
    assert encode(rows_of([])) == []


def test_slices() -> None:
    """Arrow arrays may begin anywhere in their buffers."""
    records = [
        Record(b"k%d" % number, b"v" * number, number, (RecordHeader(b"h%d" % number, None),) * (number % 3))
        for number in range(20)
    ]
    every = rows_of(records)
    keys, values, headers = (column.slice(3, 9) for column in every[:3])
    part = Rows(keys, values, headers, every.timestamps_ms[3:12])
    assert decoded(encode(part)) == [records[3:12]]


def test_a_null_list_may_have_something_behind_it() -> None:
    every = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADER)
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), every, type=pa.list_(HEADER), mask=pa.array([True, False])
    )
    rows = rows_of([Record(b"k", b"v", 5)] * 2)._replace(headers=headers)
    assert decoded(encode(rows)) == [[Record(b"k", b"v", 5), Record(b"k", b"v", 5, (RecordHeader(b"b", b"2"),))]]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key(header: dict[str, bytes | None] | None) -> None:
    rows = rows_of([Record()])._replace(headers=pa.array([[{"key": "k", "value": b""}, header]], pa.list_(HEADER)))
    with pytest.raises(ValueError, match="header of a record is null, or has no key"):
        encode(rows)


def test_a_record_larger_than_a_batch_has_one_for_itself() -> None:
    records = [Record(value=bytes(size)) for size in (10, 10, 5000, 10, 5000, 10)]
    found = decoded(encode(rows_of(records), bytes_max=1000))
    assert found == [records[:2], [records[2]], [records[3]], [records[4]], [records[5]]]


def test_a_record_that_is_too_large() -> None:
    """The limit applies to the size of its batch, as in Kafka's producer."""
    records = [Record(), Record(value=bytes(10_000))]
    size_bytes = len(build_batch(records[1:]))
    assert len(encode(rows_of(records), record_bytes_max=size_bytes)) == 1
    with pytest.raises(RecordTooLarge) as caught:
        encode(rows_of(records), record_bytes_max=size_bytes - 1)
    assert f"the message is {size_bytes} bytes when serialized which is larger than {size_bytes - 1}" in str(
        caught.value
    )
    assert "option kafka.max.request.size" in str(caught.value)


@given(RECORDS, st.sampled_from(Codec), st.booleans())
def test_a_stamp_makes_a_batch_a_producers(records: list[Record], codec: Codec, is_transactional: bool) -> None:
    (one,) = encode(rows_of(records), codec=codec)
    stamped = stamp(one.batch, 2**40, 7, 2**31 - 1, is_transactional=is_transactional)
    attributes = codec | (TRANSACTIONAL_BIT if is_transactional else 0)
    (batch,) = batches_of(stamped)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 7, 2**31 - 1)
    assert batch.attributes == attributes
    if codec is Codec.NONE:
        assert stamped == build_batch(records, attributes=attributes, producer=(2**40, 7, 2**31 - 1))
    assert stamp(stamped, -1, -1, -1, is_transactional=False) == one.batch
