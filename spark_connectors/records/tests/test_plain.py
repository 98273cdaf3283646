"""Plain batches of another log: the same records at the same offsets, without producer and transaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.append_at_offset_checks import check_kept
from engine.batches.batch import (
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Record,
    RecordHeader,
    build_batch,
    parse_header,
    seal_batch,
    varint,
)
from engine.batches.batch import Codec as StoredCodec
from engine.batches.codecs import compress
from engine.batches.produce_checks import ProduceLimits, check_produced
from spark_connectors.records.batches import batches_of
from spark_connectors.records.codecs import Codec
from spark_connectors.records.plain import DELTA_MAX, Dense, as_plain, is_dense, rebuilt, without_records
from testkit.logs import batches_in

NOW_MS = 1_700_000_000_000
LIMITS = ProduceLimits(1 << 20, 1 << 30, NOW_MS, NOW_MS, False)
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=str)


def batch_of(
    offsets: list[int], codec: Codec = Codec.NONE, attributes: int = TRANSACTIONAL_BIT, end: int | None = None
) -> bytes:
    """A batch of a transaction after compaction, with records at these offsets."""
    records = b"".join(_record(offset - offsets[0], offset) for offset in offsets)
    return bytes(
        seal_batch(
            compress(StoredCodec(codec), records),
            record_count=len(offsets),
            base_offset=offsets[0],
            leader_epoch=3,
            attributes=codec | attributes,
            timestamps_ms=(NOW_MS, NOW_MS + 7),
            producer=(1234, 5, 6),
            last_offset_delta=(offsets[-1] + 1 if end is None else end) - 1 - offsets[0],
        )
    )


def _record(delta: int, offset: int) -> bytes:
    """A record; some are tombstones, some have headers, some have no key."""
    key = None if offset % 5 == 0 else b"k%d" % (offset % 3)
    value = None if offset % 4 == 0 else b"v" * (offset % 7)
    headers = () if offset % 2 else (RecordHeader(b"h", None), RecordHeader("\u00fc".encode(), b"%d" % offset))
    whole = build_batch([Record(key, value, NOW_MS, headers)])[61:]
    size_bytes = len(varint(len(whole) - 1)) if len(whole) > 64 else 1
    body = whole[size_bytes:]
    moved = body[:1] + varint(delta % 8) + varint(delta) + body[3:]
    return varint(len(moved)) + bytes(moved)


def rows_in(data: bytes | bytearray) -> list[tuple[object, ...]]:
    """Offsets, timestamps and content of the records, in order."""
    return [
        (header.base_offset + one.offset_delta, one.timestamp_ms, one.key, one.value, one.headers)
        for header, records in batches_in(bytes(data))
        for one in records
    ]


def plain(data: bytes, end: int | None = None) -> bytearray:
    (batch,) = batches_of(data)
    return as_plain(memoryview(data), batch, end)


def rebuilt_rows(data: bytes, start: int = 0, *, keeps_time_type: bool = False) -> list[Dense]:
    (batch,) = batches_of(data)
    return list(rebuilt(memoryview(data), batch, start, keeps_time_type=keeps_time_type))


@CODECS
@given(offsets=st.sets(st.integers(0, 60), min_size=1).map(sorted), more=st.integers(0, 9))
def test_a_copy_has_the_same_records_and_is_taken(codec: Codec, offsets: list[int], more: int) -> None:
    data = batch_of(offsets, codec, end=offsets[-1] + 1 + more)
    copied = plain(data)
    header = check_kept(memoryview(copied), LIMITS, NOW_MS)
    assert rows_in(copied) == rows_in(data)
    assert header.next_offset == offsets[-1] + 1 + more
    assert copied[61:] == data[61:], "compressed as it was"


def test_a_copy_may_stand_for_offsets_behind_it() -> None:
    data = batch_of([5, 6])
    for end, next_offset in [(None, 7), (3, 7), (7, 7), (9, 9), (5 + DELTA_MAX, 5 + DELTA_MAX), (6 + DELTA_MAX, 7)]:
        copied = plain(data, end)
        assert check_kept(memoryview(copied), LIMITS, NOW_MS).next_offset == next_offset
        assert rows_in(copied) == rows_in(data)


@pytest.mark.parametrize("bits", [LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT])
def test_plain_copy_keeps_the_time_type_and_the_delete_horizon(bits: int) -> None:
    data = batch_of([5, 6], attributes=TRANSACTIONAL_BIT | bits)
    assert parse_header(plain(data)).attributes == bits
    assert rows_in(plain(data)) == rows_in(data)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (7, 9), (0, DELTA_MAX), (0, 2**40)])
def test_offsets_without_records(start: int, end: int) -> None:
    made = without_records(start, end)
    header = check_kept(memoryview(made), LIMITS, NOW_MS)
    assert (header.next_offset, header.record_count) == (end, 0)
    assert header.base_offset == max(start, end - DELTA_MAX)


@CODECS
@given(offsets=st.sets(st.integers(0, 60), min_size=1).map(sorted), start=st.integers(0, 70))
def test_records_are_put_into_batches_without_gaps(codec: Codec, offsets: list[int], start: int) -> None:
    data = batch_of(offsets, codec)
    made = rebuilt_rows(data, start)
    assert rows_in(b"".join(one.batch for one in made)) == [one for one in rows_in(data) if one[0] >= start]  # type: ignore[operator]
    for one in made:
        (batch,) = batches_of(one.batch)
        assert is_dense(batch)
        assert (batch.base_offset, batch.records, batch.codec) == (one.first_offset, one.records, codec)
        produced = bytearray(one.batch)
        produced[:8] = bytes(8)
        check_produced(memoryview(produced), LIMITS, NOW_MS, allow_zstd=True)
    assert len(made) == sum(1 for at in offsets if at >= start and (at - 1 not in offsets or at == start))


def test_rebuilt_batches_keep_append_times_and_on_request_the_time_type() -> None:
    data = batch_of([5, 6, 8], attributes=LOG_APPEND_TIME_BIT)
    for keeps in (True, False):
        made = rebuilt_rows(data, keeps_time_type=keeps)
        assert rows_in(b"".join(one.batch for one in made)) == rows_in(data)
        assert [parse_header(one.batch).is_log_append_time for one in made] == [keeps, keeps]


def test_batch_with_gaps_or_time_attributes_is_not_dense() -> None:
    def dense(data: bytes) -> bool:
        (batch,) = batches_of(data)
        return is_dense(batch)

    assert dense(batch_of([5, 6]))
    assert dense(batch_of([5, 6], attributes=0))
    assert not dense(batch_of([5, 7]))
    assert not dense(batch_of([5, 6], end=8))
    assert not dense(batch_of([5, 6], attributes=LOG_APPEND_TIME_BIT))
    assert not dense(batch_of([5, 6], attributes=DELETE_HORIZON_BIT))
