"""Frames come back as they were written; torn, flipped or stale bytes never come back as a frame."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Record, build_batch, parse_header, stamp
from engine.commit.journal_format import (
    PAGE_SIZE_BYTES,
    Barrier,
    BarrierKind,
    JournalEntry,
    SlotHeader,
    SlotRefused,
    barrier_frame,
    batches_below,
    commit_batch_frame,
    frame_size,
    frames,
    has_sound_batches,
    parse_slot_header,
    slot_header,
    whole_pages,
)

ID = b"slot-id!"
ANOTHER_ID = b"slot-id?"
TOPIC = bytes(range(16))


def entry(base_offset: int, counts: list[int], *, epoch: int = 3, position: int = 0) -> JournalEntry:
    batches, offset = [], base_offset
    for count in counts:
        batch = build_batch([Record(value=b"%d" % number) for number in range(count)])
        stamp(memoryview(batch), offset, epoch)
        batches.append(memoryview(batch))
        offset += count
    return JournalEntry(TOPIC, 7, epoch, base_offset, offset, 0, position, sum(map(len, batches)), batches)


def slot(*written: bytes) -> bytes:
    """A header and frames, each filled up to whole pages, and old bytes."""
    content = slot_header(ID, 8 * PAGE_SIZE_BYTES)
    for one in (b"", *written):
        content += one
        content += bytes(whole_pages(len(content)) - len(content))
    return content + b"\xee" * (8 * PAGE_SIZE_BYTES - len(content))


def frame(sequence: int, *entries: JournalEntry) -> bytes:
    written = b"".join(commit_batch_frame(ID, sequence, entries))
    assert len(written) == frame_size(entries)
    return written


def test_rounds_and_barriers_come_back_in_order() -> None:
    entries = (entry(10, [2, 1], position=99), entry(0, [3]))
    barrier = Barrier(TOPIC, 7, BarrierKind.TRUNCATED, 11, 10, 55)
    content = slot(frame(5, *entries), barrier_frame(ID, 6, [barrier]), frame(7, entry(13, [1])))
    first, second, third = frames(content, ID)
    assert (first.sequence, second.sequence, third.sequence) == (5, 6, 7)
    for row, written in zip(first.rows, entries, strict=True):
        assert row[:7] == written[:7]
        assert content[row.start : row.start + row.size_bytes] == b"".join(written.batches)
        assert has_sound_batches(content, row)
    assert second.barriers == (barrier,)
    assert list(frames(content, ANOTHER_ID)) == [], "nobody but the slot's owner can write a frame"


@given(st.data())
def test_a_flipped_bit_is_detected_in_the_frame_or_in_its_batches(data: st.DataObject) -> None:
    content = bytearray(slot(frame(5, entry(10, [2, 1]), entry(40, [1]))))
    [good] = frames(bytes(content), ID)
    end = good.rows[-1].start + good.rows[-1].size_bytes
    bit = data.draw(st.integers(PAGE_SIZE_BYTES * 8, end * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    found = list(frames(bytes(content), ID))
    assert not found or not all(has_sound_batches(bytes(content), row) for row in found[0].rows)


@given(st.integers(0, 400))
def test_a_torn_frame_is_never_taken_for_a_whole_one(cut: int) -> None:
    whole = frame(5, entry(10, [2, 1]))
    torn = whole[: max(0, len(whole) - 1 - cut)] + b"\xee"
    content = slot(frame(4, entry(9, [1])), torn)
    first, *rest = frames(content, ID)
    assert first.sequence == 4
    assert not rest or not all(has_sound_batches(content, row) for row in rest[0].rows)


def test_left_overs_behind_the_last_frame_are_found_after_it() -> None:
    old = slot(frame(1, entry(0, [1])), frame(2, entry(1, [1])), frame(3, entry(2, [1])))
    new = slot(frame(9, entry(8, [20] * 20)))
    end = 3 * PAGE_SIZE_BYTES  # the new frame takes two pages
    assert [one.end for one in frames(new, ID)] == [end]
    content = new[:end] + old[end:]
    assert [one.sequence for one in frames(content, ID)] == [9, 3]


def test_batches_below_an_offset() -> None:
    content = slot(frame(5, entry(10, [2, 1, 4])))
    [row] = next(frames(content, ID)).rows
    kept = batches_below(content, row, 14)
    assert (kept.end_offset, has_sound_batches(content, kept)) == (13, True)
    assert batches_below(content, row, 11).size_bytes == 0
    assert batches_below(content, row, 17) == row
    assert parse_header(content, row.start).next_offset == 12


def test_slot_headers() -> None:
    header = slot_header(ID, 4096)
    assert parse_slot_header(header) == SlotHeader(ID, 4096, is_current=True)
    for position in range(len(header)):
        damaged = bytearray(header)
        damaged[position] ^= 1
        assert parse_slot_header(bytes(damaged)) is None
    assert parse_slot_header(header[:-1]) is None
    assert parse_slot_header(_of_version(1)) == SlotHeader(ID, 4096, is_current=False)
    with pytest.raises(SlotRefused, match="version 3"):
        parse_slot_header(_of_version(3))


def _of_version(version: int) -> bytes:
    header = bytearray(slot_header(ID, 4096))
    header[8:12] = version.to_bytes(4, "big")
    header[4:8] = crc32c(bytes(header[8:])).to_bytes(4, "big")
    return bytes(header)
