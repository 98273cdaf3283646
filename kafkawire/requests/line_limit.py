"""Limit of log lines a minute, for events that a peer can cause as often as it likes. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Final

MINUTE_S: Final = 60.0


class LineLimits:
    """Limit of lines in a minute for each cause, and for all of them: one cause leaves room for the others."""

    def __init__(self, of_a_cause_max: int, in_all_max: int) -> None:
        self._of_a_cause_max = of_a_cause_max
        self._in_all = LineLimit(in_all_max)
        self._minute_start_s = -inf
        self._of_cause: dict[object, int] = {}  # lines of this minute: at most `in_all_max` causes a minute
        self._unlogged = 0

    def admit(self, cause: Hashable, now_s: float) -> int | None:
        """The number of events since the last line; None: no line for this event. See `LineLimit.admit`."""
        if now_s - self._minute_start_s >= MINUTE_S:
            self._minute_start_s = now_s
            self._of_cause.clear()
        logged = self._of_cause.get(cause, 0)
        unlogged = self._in_all.admit(now_s) if logged < self._of_a_cause_max else None
        if unlogged is None:
            self._unlogged += logged >= self._of_a_cause_max
            return None
        self._of_cause[cause] = logged + 1
        unlogged, self._unlogged = unlogged + self._unlogged, 0
        return unlogged


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
