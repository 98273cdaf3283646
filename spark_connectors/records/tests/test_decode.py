"""Rows of batches: the same as those of the engine, for all splits, codecs and groups."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Codec, Record, RecordHeader, build_batch
from engine.errors import CorruptMessage
from spark_connectors.records import decode as decoding
from spark_connectors.records import groups, starts
from spark_connectors.records.batches import batches_of
from spark_connectors.records.columns import COLUMNS, schema_of
from spark_connectors.records.decode import ROWS_MAX, decode
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.tests.written import (
    ALL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NOW_MS,
    Row,
    batch,
    decoded,
    record_batches,
    rows_by_the_engine,
    sealed,
)

TIMESTAMP_MAX_MS = (2**63 - 1) // 1000

sizes = st.sampled_from([0, 1, 62, 63, 64, 65, 127, 128, 8190, 8192])  # around the borders of varints
octets = st.none() | st.binary(max_size=12) | sizes.map(bytes)
timestamps_ms = st.integers(NOW_MS, NOW_MS + 100) | st.integers(-(2**61), 2**61)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=5).map(str.encode), octets), max_size=3).map(tuple)
records = st.builds(Record, octets, octets, timestamps_ms, headers)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Consecutive batches of all kinds."""
    log, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        of_batch = draw(st.lists(records, min_size=1, max_size=8))
        log += batch(
            *of_batch,
            codec=draw(st.sampled_from(Codec)),
            base_offset=offset,
            attributes=draw(st.sampled_from([0, LOG_APPEND_TIME, DELETE_HORIZON])),
            kept=draw(st.none() | st.sets(st.integers(0, len(of_batch) - 1)).map(sorted)),
            max_timestamp_ms=draw(st.none() | timestamps_ms),
        )
        offset += len(of_batch) + draw(st.integers(0, 3))
    return log


@contextmanager
def limits(lockstep_batches_min: int, group_records: int, slice_bytes: int, rows_max: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "LOCKSTEP_BATCHES_MIN", lockstep_batches_min)
        patch.setattr(groups, "GROUP_RECORDS", group_records)
        patch.setattr(decoding, "SLICE_BYTES", slice_bytes)
        patch.setattr(decoding, "ROWS_MAX", rows_max)
        yield


def as_spark_has_it(row: Row) -> Row:
    """A row as Spark has it: a timestamp that does not fit is null, which is 0 in these tests."""
    return row if abs(row.timestamp_ms) <= TIMESTAMP_MAX_MS else row._replace(timestamp_ms=0)


@given(logs(), st.integers(1, 4), st.integers(1, 20), st.sampled_from([1, 100, 1 << 20]), st.integers(1, 30))
def test_rows_are_those_the_engine_finds(
    log: bytes, lockstep_batches_min: int, group_records: int, slice_bytes: int, rows_max: int
) -> None:
    with limits(lockstep_batches_min, group_records, slice_bytes, rows_max):
        assert decoded(log) == [as_spark_has_it(row) for row in rows_by_the_engine(log)]


@given(logs(), st.data())
def test_a_split_inside_a_batch_reads_each_offset_once(log: bytes, data: st.DataObject) -> None:
    rows = decoded(log)
    batches = batches_of(log)
    first, behind = batches[0].base_offset, batches[-1].next_offset
    cuts = sorted(data.draw(st.lists(st.integers(first, behind), max_size=4)))
    parts = [decoded(log, start=start, end=end) for start, end in zip([first, *cuts], [*cuts, behind], strict=True)]
    assert [row for part in parts for row in part] == rows


def test_incomplete_batch_is_left_out_and_a_split_returns_only_its_offsets() -> None:
    log = batch(Record(b"a"), Record(b"b")) + batch(Record(b"c"), base_offset=2)
    assert [row.key for row in decoded(log[:-1])] == [b"a", b"b"]
    assert [row.key for row in decoded(log, start=1, end=3)] == [b"b", b"c"]


@pytest.mark.parametrize("codec", Codec)
def test_many_rows_come_in_slices(codec: Codec) -> None:
    per_batch, size_bytes = 100, 1000
    log = b"".join(
        batch(
            *(Record(b"%d" % number, bytes(size_bytes), NOW_MS) for number in range(first, first + per_batch)),
            codec=codec,
            base_offset=first,
        )
        for first in range(0, 10_000, per_batch)
    )
    found = record_batches(log)
    assert [number for one in found for number in one.column("offset").to_pylist()] == list(range(10_000))
    assert [key for one in found for key in one.column("key").to_pylist()] == [b"%d" % n for n in range(10_000)]
    assert all(one.nbytes < 2 << 20 for one in found)
    assert len(found) <= 12


def test_record_larger_than_a_slice_has_a_slice_of_its_own() -> None:
    log = batch(Record(b"a", bytes(3 << 20)), Record(b"b"), Record(b"c", bytes(2 << 20)))
    assert [one.num_rows for one in record_batches(log)] == [1, 1, 1]


def test_a_batch_of_very_many_records_is_several_groups() -> None:
    count = 2 * groups.GROUP_RECORDS + 3
    log = batch(*[Record(timestamp_ms=NOW_MS)] * count, codec=Codec.ZSTD)
    found = record_batches(log, schema=schema_of(["offset"]))
    assert [number for one in found for number in one.column(0).to_pylist()] == list(range(count))
    assert max(one.num_rows for one in found) <= ROWS_MAX


@pytest.mark.parametrize("name", COLUMNS)
def test_each_column_alone(name: str) -> None:
    log = batch(Record(b"k", b"v", NOW_MS, (RecordHeader(b"h", b"w"),)), base_offset=5)
    [whole], [alone] = record_batches(log), record_batches(log, schema=schema_of([name]))
    assert alone.equals(whole.select([name]))


def test_columns_come_in_the_order_of_the_schema() -> None:
    [one] = record_batches(batch(Record(b"k", b"v")), schema=schema_of(["value", "offset", "key"]))
    assert one.to_pylist() == [{"value": b"v", "offset": 0, "key": b"k"}]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("key", pa.large_binary())]),
        pa.schema([("timestamp", pa.timestamp("ms", tz="UTC"))]),
        pa.schema([pa.field("offset", pa.int64(), nullable=False)]),
        pa.schema([("leader", pa.int32())]),
    ],
    ids=["large", "milliseconds", "not null", "unknown"],
)
def test_a_schema_of_anything_else_is_refused(schema: pa.Schema) -> None:
    with pytest.raises(ValueError, match="not columns of the kafka source"):
        record_batches(batch(Record()), schema=schema)


def test_rows_are_made_without_pandas() -> None:
    """pyarrow imports pandas for its first scalar, which takes as long as a million rows."""
    script = (
        "import sys\n"
        "from engine.batches.batch import Record, RecordHeader\n"
        "from spark_connectors.records.tests.written import batch, record_batches\n"
        "headers = (RecordHeader(b'key', b'value'),)\n"
        "assert record_batches(batch(Record(b'key', None, 1, headers), Record(None, b'value', 2)))\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


def test_no_batch_no_rows() -> None:
    assert record_batches(b"") == []
    assert record_batches(batch(Record(), kept=[])) == []
    assert record_batches(batch(Record()), start=1) == []
    assert record_batches(batch(Record()), end=0) == []


@pytest.mark.parametrize(("attributes", "expected"), [(0, [5, 9, 7]), (LOG_APPEND_TIME, [8, 8, 8])])
def test_rows_have_record_times_or_the_append_time_of_their_batch(attributes: int, expected: Sequence[int]) -> None:
    log = batch(*(Record(timestamp_ms=time) for time in (5, 9, 7)), attributes=attributes, max_timestamp_ms=8)
    assert [(row.timestamp_ms, row.timestamp_type) for row in decoded(log)] == [
        (time, int(attributes == LOG_APPEND_TIME)) for time in expected
    ]


def test_times_of_batches_of_both_kinds_side_by_side() -> None:
    log = b"".join(
        batch(Record(timestamp_ms=1), Record(timestamp_ms=2), base_offset=2 * index, attributes=attributes)
        for index, attributes in enumerate([0, LOG_APPEND_TIME, DELETE_HORIZON])
    )
    assert [row.timestamp_ms for row in decoded(log)] == [1, 2, 2, 2, 1, 2]


def test_a_time_that_sparks_microseconds_do_not_hold_is_null() -> None:
    times = [TIMESTAMP_MAX_MS, TIMESTAMP_MAX_MS + 1, 0, -TIMESTAMP_MAX_MS, -TIMESTAMP_MAX_MS - 1, 2**62, -1]
    [one] = record_batches(batch(*(Record(timestamp_ms=time) for time in times)))
    assert one.column("timestamp").cast(pa.int64()).to_pylist() == [
        TIMESTAMP_MAX_MS * 1000, None, 0, -TIMESTAMP_MAX_MS * 1000, None, None, -1000,
    ]  # fmt: skip


def test_a_time_that_java_wraps_around_is_wrapped_around() -> None:
    log = bytearray(batch(Record(timestamp_ms=0), Record(timestamp_ms=3)))
    log = bytearray(sealed(bytes(log[61:]), 2, timestamps_ms=(2**63 - 1, 0)))
    assert record_batches(bytes(log))[0].column("timestamp").null_count == 2


# Errors in records whose header and CRC are right.


def body_of(*of_batch: Record) -> bytes:
    return bytes(build_batch(of_batch)[61:])


ONE = body_of(Record(b"k", b"v", NOW_MS))
BEYOND_BATCH = "a record reaches beyond its batch|behind the end of their batch"
BEYOND_RECORD = "a field reaches beyond its record"
WRONG = {
    "more records than bytes": (ONE, 2, "more records than there are bytes for"),
    "fewer records than bytes": (ONE + ONE, 1, "records end before or behind the end of their batch"),
    "cut": (ONE[:-1], 1, BEYOND_BATCH),
    "bytes behind": (ONE + b"\0" * 10, 1, "records end before or behind the end of their batch"),
    "record beyond its batch": (b"\x14" + ONE[1:], 1, BEYOND_BATCH),
    "record of less than no length": (b"\x11" + ONE[1:], 1, "a record of less than no length"),
    "record of no length": (b"\0" + body_of(Record(b"k", b"long value")), 2, BEYOND_RECORD),
    "length without end": (b"\xff" * 20, 1, "the length of a record does not end"),
    "length cut": (ONE + b"\xff" * 2, 2, "more records than there are bytes for"),
    "key beyond its record": (ONE[:4] + b"\x7e" + ONE[5:], 1, BEYOND_RECORD),
    "value beyond its record": (ONE[:6] + b"\x7e" + ONE[7:], 1, BEYOND_RECORD),
    "value without end": (b"\x16" + ONE[1:6] + b"\xff" * 6, 1, "a varint of more than 5 bytes"),
    "time without end": (b"\x20\x00" + b"\xff" * 15, 1, "a varint of more than 10 bytes"),
    "offset outside": (ONE[:3] + b"\x02" + ONE[4:], 1, "an offset outside of its batch"),
    "offset below": (ONE[:3] + b"\x01" + ONE[4:], 1, "an offset outside of its batch"),
    "one offset twice": (ONE + ONE, 2, "do not ascend"),
    "no number of headers": (b"\x0e" + ONE[1:-1], 1, "ends before its headers"),
    "headers that are not there": (ONE[:-1] + b"\x02", 1, "more headers than bytes"),
    "very many headers": (b"\x16" + ONE[1:-1] + b"\xfe\xff\xff\x0f", 1, "more headers than bytes"),
    "fewer than no headers": (ONE[:-1] + b"\x01", 1, "more headers than bytes"),
    "bytes behind the headers": (b"\x12" + ONE[1:] + b"\0", 1, "longer than its fields"),
    "header without a key": (b"\x14" + ONE[1:-1] + b"\x02\x01\x00", 1, "a header without a key"),
    "header beyond its record": (b"\x14" + ONE[1:-1] + b"\x02\x00\x08", 1, BEYOND_RECORD),
    "header that does not end": (b"\x14" + ONE[1:-1] + b"\x02\xff\xff", 1, "ends within a field"),
}


@pytest.mark.parametrize("lockstep_batches_min", [1, 100])
@pytest.mark.parametrize("what", WRONG)
def test_records_that_contradict_themselves_are_malformed(what: str, lockstep_batches_min: int) -> None:
    body, count, message = WRONG[what]
    log = batch(Record(b"before")) + sealed(body, count, base_offset=1) + batch(Record(b"behind"), base_offset=9)
    with limits(lockstep_batches_min, 1000, 1 << 20, 1000), pytest.raises(MalformedBatch, match=message):
        decoded(log)


@pytest.mark.parametrize("what", ["more records than bytes", "fewer records than bytes", "cut", "one offset twice"])
def test_and_so_are_those_of_a_batch_that_is_read_in_parts(what: str) -> None:
    body, count, message = WRONG[what]
    with limits(100, 2, 1 << 20, 1000), pytest.raises(MalformedBatch, match=message):
        decoded(sealed(body_of(Record(), Record(), Record()) + body, 3 + count, last_offset_delta=20))


def test_parts_of_a_batch_have_no_offset_twice() -> None:
    with limits(100, 2, 1 << 20, 1000), pytest.raises(MalformedBatch, match="ascend"):
        decoded(sealed(body_of(Record(), Record()) * 2, 4, last_offset_delta=3))


def test_header_that_claims_more_records_than_bytes_is_malformed() -> None:
    claims = sealed(ONE, 2**31 - 1, last_offset_delta=2**31 - 2)
    with pytest.raises(MalformedBatch, match="more records than there are bytes for"):
        decoded(claims)


@given(st.data(), st.integers(1, 50), st.sampled_from([1, 100]))
def test_hostile_records_are_malformed_or_those_the_engine_finds(
    data: st.DataObject, flips: int, lockstep_batches_min: int
) -> None:
    of_batch = data.draw(st.lists(records, min_size=1, max_size=4))
    body = bytearray(body_of(*of_batch))
    for _ in range(flips):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    log = sealed(bytes(body), len(of_batch))
    with limits(lockstep_batches_min, 1000, 1 << 20, 1000):
        try:
            found = decoded(log)
        except MalformedBatch:
            return
    try:
        expected = rows_by_the_engine(log)
    except CorruptMessage as error:
        pytest.fail(f"the engine refuses it: {error}")
    assert [row[:3] for row in found] == [row[:3] for row in expected]


def test_batches_are_given_in_their_order() -> None:
    log = batch(Record()) + batch(Record(), base_offset=1)
    backwards = batches_of(log)[::-1]
    with pytest.raises(AssertionError):
        list(decode(log, backwards, topic="t", partition=0, start=0, end=2, schema=ALL))
