"""Retention of the change log: the newest changes are kept, up to a number and up to a size. Pure.

A broker that is late by more loads everything, which then is not much more to read. Which changes are dropped depends
on the sizes of the kept ones alone: so all brokers know which ones the writer of the next change deletes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_MAX: Final = 200
KEPT_SIZE_MAX_BYTES: Final = 8 * 1024 * 1024  # sixteen of the largest: a load takes less long than these to be written
DROPPED_AT_ONCE_MAX: Final = 16  # the room of a full multi


class ChangeRetention:
    """The sizes of the changes that are kept, as they are stored, up to the newest."""

    def __init__(self, newest: int, sizes_bytes: Sequence[int] = ()) -> None:
        self._newest = newest
        self._sizes_bytes = deque(sizes_bytes)
        self._total_bytes = sum(sizes_bytes)

    def dropped_by(self, size_bytes: int) -> range:
        """The numbers of the changes that are dropped with the next change, if it has this size."""
        count, total_bytes, dropped = len(self._sizes_bytes) + 1, self._total_bytes + size_bytes, 0
        for oldest_bytes in self._sizes_bytes:
            if dropped == DROPPED_AT_ONCE_MAX or (count <= KEPT_MAX and total_bytes <= KEPT_SIZE_MAX_BYTES):
                break
            count, total_bytes, dropped = count - 1, total_bytes - oldest_bytes, dropped + 1
        oldest = self._newest - len(self._sizes_bytes) + 1
        return range(oldest, oldest + dropped)

    def add(self, size_bytes: int) -> None:
        """Add the next change."""
        for _ in self.dropped_by(size_bytes):
            self._total_bytes -= self._sizes_bytes.popleft()
        self._sizes_bytes.append(size_bytes)
        self._total_bytes += size_bytes
        self._newest += 1
