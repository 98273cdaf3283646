"""Compaction of single batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import (
    TIMESTAMP_MAX_MS,
    BatchHeader,
    Codec,
    Record,
    RecordHeader,
    build_batch,
    has_right_crc,
    parse_header,
    seal_batch,
    walk_records,
)
from engine.batches.codecs import decompress
from engine.batches.keyed import keys_of, records_of_batch
from engine.compaction.rules import ENTRY_SIZE_BYTES, KEY_MAX_BYTES, NewestOffsets, Rules
from engine.errors import CorruptMessage
from testkit.logs import NOW_MS, keyed_batch
from testkit.wrong_timestamps import record_with_delta

RETENTION_MS = 1000
FAR = 1 << 40

keys = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    keys,
    st.none() | st.binary(max_size=200),
    st.integers(-1, 2**40),
    st.lists(st.builds(RecordHeader, st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
)


def at(batch: bytearray, base_offset: int) -> tuple[memoryview, BatchHeader]:
    batch[:8] = base_offset.to_bytes(8, "big")
    return memoryview(batch), parse_header(batch)


def newest(*batches: tuple[memoryview, BatchHeader], first_dirty: int = 0) -> NewestOffsets:
    found = NewestOffsets(FAR, first_dirty)
    for batch, header in batches:
        found.note(batch, header)
    return found


def rules(known: NewestOffsets, *, now_ms: int = NOW_MS, last_offsets: dict[int, int] | None = None) -> Rules:
    return Rules(known, now_ms, RETENTION_MS, last_offsets or {})


def contents(batch: memoryview | bytearray) -> dict[int, tuple[bytes | None, bytes | None, int]]:
    """The records of a batch by offset, as (key, value, timestamp); the header has to fit."""
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert has_right_crc(memoryview(batch), header)
    body = decompress(header.codec_id, memoryview(batch)[61:])
    found = list(walk_records(header, body))
    if found and not header.is_log_append_time:
        assert header.max_timestamp_ms == max(one.timestamp_ms for one in found)
    return {header.base_offset + one.offset_delta: (one.key, one.value, one.timestamp_ms) for one in found}


@given(st.lists(records, min_size=1, max_size=200))
def test_keys_of_returns_the_key_and_the_bounds_of_every_record(records: list[Record]) -> None:
    batch = build_batch(records)
    body = bytes(batch[61:])
    seen = keys_of(body, len(records))
    assert [(delta, key, has_value) for delta, key, has_value, _, _ in seen] == [
        (index, one.key, one.value is not None) for index, one in enumerate(records)
    ]
    assert b"".join(body[start:end] for _, _, _, start, end in seen) == body


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_damaged_records_are_told_or_look_like_records(those: list[Record], data: st.DataObject) -> None:
    body = bytearray(build_batch(those)[61:])
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        seen = keys_of(bytes(body), len(those))
    except CorruptMessage:
        return
    assert len(seen) == len(those)


def test_the_newest_of_each_key_stays() -> None:
    first = at(keyed_batch((b"a", b"1"), (b"b", b"2"), (b"a", b"3")), 10)
    second = at(keyed_batch((b"b", b"4"), (b"c", b"5")), 13)
    those = rules(newest(first, second))
    cleaned = those.cleaned(*first, FAR)
    assert cleaned is not None
    assert contents(cleaned) == {12: (b"a", b"3", NOW_MS)}
    assert parse_header(cleaned).next_offset == 13
    assert those.cleaned(*second, FAR) is second[0], "nothing to drop: its bytes as they are"


def test_a_timestamp_of_more_than_64_bits_is_bounded() -> None:
    section = record_with_delta(0, b"a") + record_with_delta(2**63 - 1, b"b", 1)
    times, producer = (NOW_MS, NOW_MS), (-1, -1, -1)
    made = seal_batch(
        section, record_count=2, base_offset=0, leader_epoch=-1, attributes=0, timestamps_ms=times, producer=producer
    )
    first, second = at(made, 10), at(keyed_batch((b"a", b"2")), 12)
    cleaned = rules(newest(first, second)).cleaned(*first, FAR)
    assert cleaned is not None
    assert contents(cleaned) == {11: (b"b", None, TIMESTAMP_MAX_MS)}


@pytest.mark.parametrize("codec", Codec)
def test_a_codec_stays(codec: Codec) -> None:
    times = [NOW_MS + 5, NOW_MS + 900, NOW_MS - 7]
    batch = at(keyed_batch((b"a", b"1" * 99), (b"a", b"2" * 99), (b"b", b"3"), codec=codec, timestamps_ms=times), 0)
    cleaned = rules(newest(batch)).cleaned(*batch, FAR)
    assert cleaned is not None
    assert parse_header(cleaned).codec_id == codec
    assert contents(cleaned) == {1: (b"a", b"2" * 99, NOW_MS + 900), 2: (b"b", b"3", NOW_MS - 7)}


def test_a_tombstone_gets_a_delete_horizon_and_stays_until_that_time() -> None:
    batch = at(keyed_batch((b"a", b"1"), (b"a", None), (b"b", b"2"), timestamps_ms=[NOW_MS - 3, NOW_MS - 2, -1]), 0)
    known = newest(batch)
    marked = rules(known).cleaned(*batch, FAR)
    assert marked is not None
    header = parse_header(marked)
    assert header.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert contents(marked) == {1: (b"a", None, NOW_MS - 2), 2: (b"b", b"2", -1)}
    again = memoryview(marked), header
    seen = newest(batch, first_dirty=3)
    before, after = rules(seen, now_ms=NOW_MS + RETENTION_MS - 1), rules(seen, now_ms=NOW_MS + RETENTION_MS)
    assert before.cleaned(*again, FAR) is again[0]
    dirty = rules(known, now_ms=NOW_MS + RETENTION_MS)
    renewed = dirty.cleaned(*again, FAR)
    assert renewed is not None, "what it deletes may be here, whatever another log says"
    assert (parse_header(renewed).delete_horizon_ms, contents(renewed)) == (NOW_MS + 2 * RETENTION_MS, contents(marked))
    assert (dirty.stamped_ms, dirty.tombstones_to, dirty.dropped_ms) == (NOW_MS + 2 * RETENTION_MS, 0, None)
    gone = after.cleaned(*again, FAR)
    assert (before.tombstones_to, after.tombstones_to) == (0, 2)
    assert (before.dropped_ms, after.dropped_ms) == (None, NOW_MS + RETENTION_MS)
    assert gone is not None
    assert contents(gone) == {2: (b"b", b"2", -1)}
    assert parse_header(gone).delete_horizon_ms == header.delete_horizon_ms


def test_an_emptied_batch_stays_only_while_its_header_is_needed() -> None:
    old = at(keyed_batch((b"a", b"1"), (b"b", b"2"), producer=(7, 3, 40), codec=Codec.GZIP), 0)
    known = newest(old, at(keyed_batch((b"a", b"3"), (b"b", b"4")), 2))
    assert rules(known).cleaned(*old, FAR) is None
    assert rules(known, last_offsets={7: 0}).cleaned(*old, FAR) is None
    for empty in (rules(known, last_offsets={7: 1}).cleaned(*old, FAR), rules(known).cleaned(*old, 2)):
        assert empty is not None
        assert contents(empty) == {}
        header, before = parse_header(empty), old[1]
        assert (header.base_offset, header.next_offset, header.codec_id) == (0, 2, 0)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
        assert (header.max_timestamp_ms, header.leader_epoch) == (before.max_timestamp_ms, before.leader_epoch)
        again = memoryview(empty), header
        assert rules(known, last_offsets={7: 1}).cleaned(*again, FAR) is again[0]
        assert rules(known).cleaned(*again, FAR) is None


def test_a_batch_whose_keys_were_not_noted_stays_unchanged() -> None:
    seen, unseen = at(keyed_batch((b"a", b"1")), 0), at(keyed_batch((b"a", b"2"), (None, b"3")), 1)
    those = rules(newest(seen))
    assert those.cleaned(*seen, FAR) is seen[0]
    assert those.cleaned(*unseen, FAR) is unseen[0]


def test_records_without_a_key_go_and_control_batches_stay() -> None:
    batch = at(keyed_batch((None, b"1"), (b"a", b"2")), 0)
    cleaned = rules(newest(batch)).cleaned(*batch, FAR)
    assert cleaned is not None
    assert contents(cleaned) == {1: (b"a", b"2", NOW_MS)}
    control = at(build_batch([Record(b"\0\0\0\1", b"")], attributes=0x20), 0)
    assert rules(newest(control)).cleaned(*control, FAR) is control[0]


def test_records_below_the_first_dirty_offset_are_not_noted_again() -> None:
    batch = at(keyed_batch((b"a", b"1"), (b"b", b"2"), (b"c", b"3")), 5)
    assert newest(batch, first_dirty=6).offsets == {b"b": 6, b"c": 7}
    assert newest(batch, first_dirty=8).offsets == {}


def test_long_keys_are_told_apart() -> None:
    common = b"k" * KEY_MAX_BYTES
    those = [(common + b"%d" % number, b"v") for number in range(3)] + [(common[:-1], b"v"), (common, b"v")]
    batch = at(keyed_batch(*those, *those[:1]), 0)
    known = newest(batch)
    assert len(known.offsets) == 5
    cleaned = rules(known).cleaned(*batch, FAR)
    assert cleaned is not None
    assert sorted(contents(cleaned)) == [1, 2, 3, 4, 5]


def test_memory_is_bounded() -> None:
    known = NewestOffsets(ENTRY_SIZE_BYTES * 10, 0)
    for number in range(10):
        assert not known.is_full
        known.note(*at(keyed_batch((b"%d" % number, b"v")), number))
    assert known.is_full
    assert known.end_offset == 10


def test_records_of_a_log_append_time_batch_keep_its_time() -> None:
    batch = at(build_batch([Record(b"a", b"1", 5), Record(b"a", None, 6)], attributes=1 << 3), 0)
    cleaned = rules(newest(batch)).cleaned(*batch, FAR)
    assert cleaned is not None
    assert parse_header(cleaned).max_timestamp_ms == batch[1].max_timestamp_ms
    assert contents(cleaned) == {1: (b"a", None, 6)}
    assert records_of_batch(memoryview(cleaned), parse_header(cleaned))[1][0][0] == 1
