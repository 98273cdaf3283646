"""Log lines about many events at once, within a bound: thousands of partitions may move in one change.

A change writes at most LINES_PER_CHANGE_MAX lines of each kind of event, and one more line that counts all of them by
their reasons. A minute has at most LINES_PER_MINUTE_MAX lines of a kind; the next line of that kind counts the events
beyond that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

T = TypeVar("T")

LINES_PER_CHANGE_MAX: Final = 20
LINES_PER_MINUTE_MAX: Final = 300
MINUTE_S: Final = 60.0


class Kind(NamedTuple):
    """The phrase of one event, the phrase of a line that counts many, and the level: `info`, `warning` or `error`."""

    event: str
    summary: str
    level: str = "info"


@dataclass(slots=True)
class _Minute:
    begin_s: float
    remaining: int = LINES_PER_MINUTE_MAX
    unlogged: int = 0  # events of earlier minutes too, as long as no line has said so


class EventLog:
    """Writes to one logger. `now_s`: a clock that does not go back."""

    def __init__(self, log: FilteringBoundLogger, now_s: Callable[[], float] = trio.current_time) -> None:
        self._log = log
        self._now_s = now_s
        self._minutes: dict[str, _Minute] = {}

    def write(
        self,
        kind: Kind,
        events: Sequence[T],
        fields: Callable[[T], Mapping[str, object]],
        reason: Callable[[T], str | None] = lambda _: None,
    ) -> None:
        """Log the events of one kind from one change. `fields`: of the line of one event, and `reason` with them."""
        if not events:
            return
        minute = self._minute_of(kind)
        shown = min(len(events), LINES_PER_CHANGE_MAX, minute.remaining)
        for event in events[:shown]:
            self._write_line(kind, kind.event, minute, {**fields(event), **_reason_of(reason(event))})
        if shown == len(events):
            return
        if not minute.remaining:
            minute.unlogged += len(events) - shown
            return
        reasons = Counter(why for event in events if (why := reason(event)) is not None)
        counted = {"reasons": dict(reasons)} if reasons else {}
        self._write_line(kind, kind.summary, minute, {"count": len(events), "logged": shown, **counted})

    def _minute_of(self, kind: Kind) -> _Minute:
        now_s = self._now_s()
        known = self._minutes.get(kind.event)
        if known is None or now_s - known.begin_s >= MINUTE_S:
            unlogged = 0 if known is None else known.unlogged
            known = self._minutes[kind.event] = _Minute(now_s, unlogged=unlogged)
        return known

    def _write_line(self, kind: Kind, phrase: str, minute: _Minute, fields: Mapping[str, object]) -> None:
        unlogged = {"unlogged": minute.unlogged} if minute.unlogged else {}
        levels = {"info": self._log.info, "warning": self._log.warning, "error": self._log.error}
        levels[kind.level](phrase, **fields, **unlogged)
        minute.remaining -= 1
        minute.unlogged = 0


def _reason_of(why: str | None) -> Mapping[str, object]:
    return {} if why is None else {"reason": why}
