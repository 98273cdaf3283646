"""Limit of log lines a minute, for events that a peer can cause as often as it likes. Pure."""

from __future__ import annotations

from math import inf
from typing import Final

MINUTE_S: Final = 60.0


class LineLimit:
    """Limit of `per_minute_max` lines in a minute, which begins with its first line."""

    def __init__(self, per_minute_max: int) -> None:
        self._per_minute_max = per_minute_max
        self._minute_start_s = -inf
        self._logged = 0
        self._unlogged = 0

    def admit(self, now_s: float) -> int | None:
        """The number of events since the last line, which the line of this one tells; None: no line for this event.
        `now_s`: of any clock that does not go back."""
        if now_s - self._minute_start_s >= MINUTE_S:
            self._minute_start_s, self._logged = now_s, 0
        if self._logged == self._per_minute_max:
            self._unlogged += 1
            return None
        unlogged, self._unlogged = self._unlogged, 0
        self._logged += 1
        return unlogged
