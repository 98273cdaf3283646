"""File operations of compaction, slice by slice: read keys, copy batches into a new segment. For a worker.

A job handles one slice of about the size of a read buffer, so that no worker and no memory is used for long. Each batch
is checked before it is used: damaged bytes must not get a new CRC.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.batches.batch import HEADER_SIZE_BYTES, MAGIC, BatchHeader, has_right_crc, parse_header
from engine.batches.timestamps import newest_of_stored
from engine.compaction.rules import NewestOffsets, Rules
from engine.errors import CorruptMessage
from engine.files.filesystem import File, FileSystem
from engine.logs.segments.segment import Segment
from engine.logs.segments.sparse_index import Entry
from engine.logs.segments.swap import cleaned_path


@dataclass(slots=True)
class Target:
    """A new segment, as far as it is written; it is to end at `end_offset`. Each job adds to it."""

    file: File
    segment: Segment
    end_offset: int
    entries: list[Entry] = field(default_factory=list)
    is_changed: bool = False  # whether any batch differs


def begin_target(filesystem: FileSystem, directory: str, base_offset: int, end_offset: int) -> Target:
    file = filesystem.open(cleaned_path(directory, base_offset), create=True)
    file.truncate(0)  # a pass that was given up may have left it
    return Target(file, Segment(base_offset, file), end_offset)


def read_keys(file: File, position: int, end: int, size_bytes: int, newest: NewestOffsets) -> int:
    """Note the keys of a slice, or of less if `newest` is full; returns the position of the next slice."""
    for header, batch in _checked(file, position, end, size_bytes):
        newest.note(batch, header)
        position += header.size_bytes
        if newest.is_full:
            break
    return position


def clean_slice(file: File, position: int, end: int, size_bytes: int, rules: Rules, target: Target) -> int:
    """Write the remaining batches of a slice; returns the position of the next slice."""
    segment, kept, write_at = target.segment, [], target.segment.size_bytes
    for header, batch in _checked(file, position, end, size_bytes):
        position += header.size_bytes
        cleaned = rules.cleaned(batch, header, target.end_offset)
        target.is_changed |= cleaned is not batch
        if cleaned is not None:
            cleaned_header = header if cleaned is batch else parse_header(cleaned)
            entry = segment.add(cleaned_header, newest_of_stored(memoryview(cleaned), cleaned_header))
            if entry is not None:
                target.entries.append(entry)
            kept.append(cleaned)
    if kept:
        target.file.write_at(kept, write_at)
    return position


def _checked(file: File, position: int, end: int, size_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches of a slice, at least one. Raises CorruptMessage."""
    remaining_bytes = end - position
    window = memoryview(file.read_at(position, min(max(size_bytes, HEADER_SIZE_BYTES), remaining_bytes)))
    at = 0
    while at < remaining_bytes:
        if at + HEADER_SIZE_BYTES > len(window):
            if at:
                return
            raise CorruptMessage(f"there is no batch at position {position}")
        header = parse_header(window, at)
        batch_size_bytes = header.size_bytes
        if header.magic != MAGIC or not HEADER_SIZE_BYTES <= batch_size_bytes <= remaining_bytes - at:
            raise CorruptMessage(f"there is no batch at position {position + at}")
        if at + batch_size_bytes > len(window):
            if at:
                return
            window = memoryview(file.read_at(position, batch_size_bytes))
        batch = window[at : at + batch_size_bytes]
        if len(batch) < batch_size_bytes or not has_right_crc(batch, header):
            raise CorruptMessage(f"the batch at position {position + at} does not match its CRC")
        yield header, batch
        at += batch_size_bytes
