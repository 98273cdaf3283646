"""A sparse index of one segment: where to start reading for an offset or a timestamp.

Pure and in memory, rebuilt when a log is opened. It answers with the position of *some* batch at or before the one
looked for; the reader walks on from there by batch headers and believes those, never the index.
"""

from array import array
from bisect import bisect_left, bisect_right

INTERVAL_BYTES = 4096  # index.interval.bytes of Kafka


class SparseIndex:
    """At most one entry per 4 KiB of segment: 24 bytes of memory each."""

    __slots__ = ("_max_timestamps_ms", "_next_position", "_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")
        self._max_timestamps_ms = array("q")
        self._next_position = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, base_offset: int, position: int, max_timestamp_so_far_ms: int) -> None:
        """Note a batch; the timestamp is the greatest of the segment up to and including this batch."""
        if position < self._next_position:
            return
        self._offsets.append(base_offset)
        self._positions.append(position)
        self._max_timestamps_ms.append(max_timestamp_so_far_ms)
        self._next_position = position + INTERVAL_BYTES

    def position_for_offset(self, offset: int) -> int:
        """Start of the last indexed batch that begins at or before `offset`."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_for_timestamp(self, timestamp_ms: int) -> int:
        """Start of the last indexed batch before which, it included, every timestamp is below `timestamp_ms`."""
        entry = bisect_left(self._max_timestamps_ms, timestamp_ms) - 1
        return self._positions[entry] if entry >= 0 else 0
