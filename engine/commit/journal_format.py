"""Format of the journal: slot headers, frames and barriers, and the parsers for the replay.

Pure. Layout and rules: docs/formats/journal.md. The head of a frame has a CRC of its own; the batches behind it are
checked by theirs and against the head, so that no record byte is read twice when a commit batch is written.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from engine.batches.batch import HEADER_SIZE_BYTES, LENGTH_PREFIX_SIZE_BYTES, MAGIC, has_right_crc, parse_header

SLOT_HEADER_SIZE_BYTES = 32
PAGE_SIZE_BYTES = 4096
SLOT_ID_SIZE_BYTES = 8
SLOT_VERSION = 2
_OLDER_VERSION = 1  # without RESET barriers; the rest is the same
_SLOT_MAGIC = b"KWJS"
_SLOT = Struct(">4sIIi8s8x")
_FRAME = Struct(">8sIQiiq")  # slot id, CRC, sequence, rows, kind, size of the body
_ROW = Struct(">16siiqqqqq")
_BARRIER = Struct(">16siiqqq")
_CRC_FROM = 12
_COMMIT_BATCH = 0
_BARRIERS = 1


class JournalEntry(NamedTuple):
    """Consecutive stamped batches of one partition that go to one segment, at `position`."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    base_offset: int
    end_offset: int
    segment_base_offset: int
    position: int
    size_bytes: int
    batches: Sequence[memoryview]


class BarrierKind(IntEnum):
    """Change of the partition that follows when the barrier is durable."""

    DELETED = 1
    LOG_START = 2
    TRUNCATED = 3
    RESET = 4


class Barrier(NamedTuple):
    """An announced change of a log that a replay must not undo. `offset`: the new log start, the new log end, or both.

    `segment_base_offset`, `position`: the end of a truncated log in its files.
    """

    topic_id: bytes
    partition: int
    kind: BarrierKind
    offset: int = 0
    segment_base_offset: int = 0
    position: int = 0


class Row(NamedTuple):
    """A journal entry as read back. `start`: position of its batches in the slot."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    base_offset: int
    end_offset: int
    segment_base_offset: int
    position: int
    size_bytes: int
    start: int


class Frame(NamedTuple):
    """A frame whose head has the right CRC. `end`: position of the next frame."""

    sequence: int
    rows: tuple[Row, ...]
    barriers: tuple[Barrier, ...]
    end: int


class SlotRefused(Exception):
    """The slot has another format version."""


def slot_header(slot_id: bytes, size_bytes: int) -> bytes:
    header = bytearray(_SLOT.pack(_SLOT_MAGIC, 0, SLOT_VERSION, size_bytes, slot_id))
    header[4:8] = crc32c(bytes(header[8:])).to_bytes(4, "big")
    return bytes(header)


class SlotHeader(NamedTuple):
    """The parsed header of a slot."""

    slot_id: bytes
    size_bytes: int
    is_current: bool  # of the version that is written


def parse_slot_header(header: bytes) -> SlotHeader | None:
    """Parse the header of a slot; None: it is damaged. Raises SlotRefused."""
    if len(header) < SLOT_HEADER_SIZE_BYTES:
        return None
    magic, crc, version, size_bytes, slot_id = _SLOT.unpack_from(header)
    if magic != _SLOT_MAGIC or crc != crc32c(header[8:SLOT_HEADER_SIZE_BYTES]):
        return None
    if version not in (SLOT_VERSION, _OLDER_VERSION):
        raise SlotRefused(f"format version {version}")
    return SlotHeader(slot_id, size_bytes, version == SLOT_VERSION)


def first_frame_header(slot: bytes) -> bytes | None:
    """The header of a slot, computed from its first frame; None: that is damaged, too."""
    if _parse(slot, PAGE_SIZE_BYTES) is None:
        return None
    return slot_header(slot[PAGE_SIZE_BYTES:][:SLOT_ID_SIZE_BYTES], len(slot))


def has_incomplete_frame(slot: bytes, slot_id: bytes, position: int) -> bool:
    """Whether a frame begins there whose head is damaged or incomplete."""
    return slot.startswith(slot_id, position) and _parse(slot, position) is None


def whole_pages(size_bytes: int) -> int:
    """Round a size up to whole pages.

    Frames begin at pages, so that no write has to read a page first, or changes a page that is already durable.
    """
    return -(-size_bytes // PAGE_SIZE_BYTES) * PAGE_SIZE_BYTES


def frame_size(entries: Sequence[JournalEntry]) -> int:
    """Bytes of the frame of a commit batch, without the padding of its last page."""
    return _FRAME.size + len(entries) * _ROW.size + sum([entry.size_bytes for entry in entries])


def commit_batch_frame(slot_id: bytes, sequence: int, entries: Sequence[JournalEntry]) -> list[bytes | memoryview]:
    """The buffers of a commit batch's frame; those of the batches are not copied."""
    head = bytearray(_FRAME.size + len(entries) * _ROW.size)
    buffers: list[bytes | memoryview] = [b""]
    body_size_bytes = 0
    at = _FRAME.size
    for entry in entries:
        _ROW.pack_into(head, at, *entry[:8])
        buffers += entry.batches
        body_size_bytes += entry.size_bytes
        at += _ROW.size
    buffers[0] = _sealed(head, slot_id, sequence, len(entries), _COMMIT_BATCH, body_size_bytes)
    return buffers


def barrier_frame(slot_id: bytes, sequence: int, barriers: Sequence[Barrier]) -> bytes:
    head = bytearray(_FRAME.size + len(barriers) * _BARRIER.size)
    for index, barrier in enumerate(barriers):
        _BARRIER.pack_into(head, _FRAME.size + index * _BARRIER.size, *barrier)
    return _sealed(head, slot_id, sequence, len(barriers), _BARRIERS, 0)


def barrier_frame_size(count: int) -> int:
    return _FRAME.size + count * _BARRIER.size


def _sealed(head: bytearray, slot_id: bytes, sequence: int, rows: int, kind: int, body_size_bytes: int) -> bytes:
    _FRAME.pack_into(head, 0, slot_id, 0, sequence, rows, kind, body_size_bytes)
    crc = crc32c(memoryview(head)[_CRC_FROM:])
    head[SLOT_ID_SIZE_BYTES:_CRC_FROM] = crc.to_bytes(4, "big")
    return bytes(head)


def frames(slot: bytes, slot_id: bytes) -> Iterator[Frame]:
    """Every frame of a slot with a sound head, in file order: first the present ones, then those of earlier uses."""
    position = PAGE_SIZE_BYTES
    while position < len(slot):
        frame = _parse(slot, position) if slot.startswith(slot_id, position) else None
        if frame is not None:
            yield frame
        position = position + PAGE_SIZE_BYTES if frame is None else frame.end


def _parse(slot: bytes, position: int) -> Frame | None:
    if position + _FRAME.size > len(slot):
        return None
    _, crc, sequence, count, kind, body_size_bytes = _FRAME.unpack_from(slot, position)
    row = _ROW if kind == _COMMIT_BATCH else _BARRIER
    body = position + _FRAME.size + count * row.size
    if count < 0 or body_size_bytes < 0 or body + body_size_bytes > len(slot):
        return None
    head = memoryview(slot)[position:body]
    if crc != crc32c(head[_CRC_FROM:]):
        return None
    table = row.iter_unpack(head[_FRAME.size :])
    if kind == _COMMIT_BATCH:
        return Frame(sequence, tuple(_rows(table, body)), (), whole_pages(body + body_size_bytes))
    barriers = (Barrier(one[0], one[1], BarrierKind(one[2]), *one[3:]) for one in table)
    return Frame(sequence, (), tuple(barriers), whole_pages(body))


def _rows(table: Iterator[tuple[object, ...]], start: int) -> Iterator[Row]:
    for fields in table:
        row = Row._make((*fields, start))
        yield row
        start += row.size_bytes


def has_sound_batches(slot: bytes, row: Row) -> bool:
    """Whether the bytes of `row` are whole batches that continue each other as the row says."""
    offset, position, end = row.base_offset, row.start, row.start + row.size_bytes
    view = memoryview(slot)
    while position < end:
        if position + HEADER_SIZE_BYTES > end:
            return False
        header = parse_header(slot, position)
        size_bytes = header.batch_length + LENGTH_PREFIX_SIZE_BYTES
        if (
            header.magic != MAGIC
            or header.base_offset != offset
            or header.leader_epoch != row.leader_epoch
            or not HEADER_SIZE_BYTES <= size_bytes <= end - position
            or not has_right_crc(view[position : position + size_bytes], header)
        ):
            return False
        offset = header.next_offset
        position += size_bytes
    return offset == row.end_offset


def batches_below(slot: bytes, row: Row, offset: int) -> Row:
    """Return `row` without the batches that reach beyond `offset`; all its batches must be sound."""
    position, end_offset = row.start, row.base_offset
    while position < row.start + row.size_bytes:
        header = parse_header(slot, position)
        if header.next_offset > offset:
            break
        position += header.size_bytes
        end_offset = header.next_offset
    return row._replace(end_offset=end_offset, size_bytes=position - row.start)
