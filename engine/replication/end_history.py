"""Samples of a leader's log end by time: they tell the lag of a follower in time.

A follower under load is always a few responses behind, and never has all records that the leader had at its previous
Fetch (Kafka's lastCaughtUpTimeMs stands still then). Its lag in time is the age of the newest sample that it has
reached. Pure.
"""

from collections import deque
from typing import Final

from engine.replica_log import NEVER_MS

SAMPLES: Final = 15  # within `span_ms`; a lag in time is too great by a fifteenth of that, at most


class EndHistory:
    """Log ends of the last `span_ms`, of one partition in one leader epoch."""

    __slots__ = ("_ends", "_next_at_ms", "_spacing_ms")

    def __init__(self, span_ms: int) -> None:
        self._spacing_ms = span_ms // SAMPLES
        self._ends: deque[tuple[int, int]] = deque(maxlen=SAMPLES + 2)  # time in ms and offset, both ascending
        self._next_at_ms = NEVER_MS

    def note(self, end_offset: int, now_ms: int) -> None:
        """Sample the log end of this moment, unless the last sample is recent."""
        if now_ms < self._next_at_ms:
            return
        self._next_at_ms = now_ms + self._spacing_ms
        if self._ends and self._ends[-1][1] == end_offset:
            self._ends.pop()
        self._ends.append((now_ms, end_offset))

    def reached_at_ms(self, offset: int) -> int:
        """Return the time of the newest sample that does not exceed `offset`: a replica with all records below `offset`
        lacks no record of that time. NEVER_MS if all samples exceed it."""
        for at_ms, end_offset in reversed(self._ends):
            if end_offset <= offset:
                return at_ms
        return NEVER_MS
