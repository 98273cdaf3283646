"""Sparse index of a segment: where to start reading for an offset or a timestamp.

Pure. It returns the position of some batch at or before the wanted one. The reader walks on from there by batch
headers, and believes those, never the index. engine.index.rows has the stored form.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from engine.api import NO_TIMESTAMP_MS

INTERVAL_BYTES = 4096  # index.interval.bytes of Kafka
INTERVAL_RECORDS = 1000
ENTRIES_MAX = 16 * 1024
THIN_ENTRIES_MAX = 1024

START = (-1, 0)  # nothing is known: begin at the start of the segment


class Entry(NamedTuple):
    """An index entry: where a batch begins, and the greatest timestamp of the segment up to this batch, included."""

    offset: int
    position: int
    max_timestamp_ms: int


class Summary(NamedTuple):
    """Summary of a segment. `first_timestamp_ms` is the greatest of the first batch; `leader_epoch` is of the last
    batch."""

    size_bytes: int
    end_offset: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    leader_epoch: int


class Stored(NamedTuple):
    """The stored index of a partition that is about to be opened."""

    indexed_to: int = 0
    summaries: Mapping[int, Summary] = MappingProxyType({})
    keys_to: int = 0


class SparseIndex:
    """Index of one segment in memory, with up to ENTRIES_MAX entries of 24 bytes.

    When it is full, every other entry goes and the distance doubles. Few segments can be that dense at once: `thin`
    reduces the others to THIN_ENTRIES_MAX (engine.logs.recently_used). It covers the segment from `start_position` on;
    below that, the answer is None, and the stored index has to be read.
    """

    __slots__ = ("_interval_bytes", "_max_timestamps_ms", "_offsets", "_positions", "next_position", "start_position")

    def __init__(self, start_position: int = 0) -> None:
        self.start_position = start_position
        self.next_position = start_position  # a batch that begins before it needs no entry
        self._interval_bytes = INTERVAL_BYTES
        self._offsets = array("q")
        self._positions = array("q")
        self._max_timestamps_ms = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, base_offset: int, position: int, max_timestamp_so_far_ms: int) -> None:
        """Note a batch. The timestamp is the greatest of the segment up to this batch, included."""
        if position < self.next_position:
            return
        if len(self._offsets) == ENTRIES_MAX:
            self._halve()
        self._offsets.append(base_offset)
        self._positions.append(position)
        self._max_timestamps_ms.append(max_timestamp_so_far_ms)
        self.next_position = position + self._interval_bytes

    @property
    def is_dense(self) -> bool:
        return len(self._offsets) > THIN_ENTRIES_MAX

    def thin(self) -> None:
        """Drop entries until the index is not dense."""
        while self.is_dense:
            self._halve()

    def _halve(self) -> None:
        for column in (self._offsets, self._positions, self._max_timestamps_ms):
            del column[1::2]
        self._interval_bytes *= 2
        self.next_position = self._positions[-1] + self._interval_bytes

    def completed(self, before: Sequence[Entry]) -> "SparseIndex":
        """The whole index: stored entries of the segment's start, before those of this index."""
        whole = SparseIndex()
        own = zip(self._offsets, self._positions, self._max_timestamps_ms, strict=True)
        for offset, position, max_timestamp_ms in [
            *(one for one in before if one.position < self.start_position),
            *own,
        ]:
            whole.add(offset, position, max_timestamp_ms)
        return whole

    def below(self, offset: int) -> "tuple[SparseIndex, Entry] | None":
        """The part of the index for batches that end at or below `offset`, and its last entry; None if it has no
        entry."""
        count = bisect_right(self._offsets, offset) - 1  # without the last: its batch may hold the offset
        if count <= 0:
            return None
        kept = SparseIndex(self.start_position)
        kept._interval_bytes = self._interval_bytes
        kept._offsets = self._offsets[:count]
        kept._positions = self._positions[:count]
        kept._max_timestamps_ms = self._max_timestamps_ms[:count]
        last = Entry(kept._offsets[-1], kept._positions[-1], kept._max_timestamps_ms[-1])
        kept.next_position = last.position + kept._interval_bytes
        return kept, last

    def before_offset(self, offset: int) -> tuple[int, int] | None:
        """(Offset, position) of the last known batch that begins at or before `offset`; None: read the stored index."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._at(entry)

    def before_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(Offset, position) of the last known batch up to which, included, all timestamps are below `timestamp_ms`.

        Entries without a timestamp do not tell: their headers may have been wrong.
        """
        entry = bisect_left(self._max_timestamps_ms, timestamp_ms) - 1
        return self._at(entry if entry >= 0 and self._max_timestamps_ms[entry] != NO_TIMESTAMP_MS else -1)

    def offset_behind(self, position: int) -> int | None:
        """The offset of the first known batch that begins at or behind `position`; None without one."""
        entry = bisect_left(self._positions, position)
        return self._offsets[entry] if entry < len(self._offsets) else None

    def _at(self, entry: int) -> tuple[int, int] | None:
        if entry >= 0:
            return self._offsets[entry], self._positions[entry]
        return None if self.start_position else START
