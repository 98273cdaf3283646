"""Log lines about many events at once stay within their bound, and all events are counted."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.testing import capture_logs

from coordinator.event_log import LINES_PER_CHANGE_MAX, LINES_PER_MINUTE_MAX, MINUTE_S, EventLog, Kind

SHRUNK, LOST = Kind("isr shrunk", "isrs shrunk"), Kind("leader lost", "leaders lost", "warning")


class Clock:
    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def lines_of(clock: Clock, *changes: int, kind: Kind = SHRUNK, events: EventLog | None = None) -> list[dict[str, Any]]:
    """The log lines of changes with so many events each."""
    with capture_logs() as lines:
        events = events or EventLog(structlog.get_logger(), clock)
        for count in changes:
            events.write(kind, range(count), lambda one: {"partition": one}, lambda one: "odd" if one % 2 else "even")
    return [dict(line) for line in lines]


def test_each_event_is_logged_in_its_own_line_up_to_a_limit() -> None:
    lines = lines_of(Clock(), LINES_PER_CHANGE_MAX)
    assert lines[:2] == [
        {"event": "isr shrunk", "log_level": "info", "partition": 0, "reason": "even"},
        {"event": "isr shrunk", "log_level": "info", "partition": 1, "reason": "odd"},
    ]
    assert len(lines) == LINES_PER_CHANGE_MAX
    assert lines_of(Clock(), 0) == []


def test_events_above_the_limit_are_counted_by_reason_in_one_line() -> None:
    lines = lines_of(Clock(), 5_001, kind=LOST)
    assert len(lines) == LINES_PER_CHANGE_MAX + 1
    reasons = {"even": 2_501, "odd": 2_500}
    assert lines[-1] == {
        "event": "leaders lost", "log_level": "warning", "count": 5_001, "logged": LINES_PER_CHANGE_MAX,
        "reasons": reasons,
    }  # fmt: skip


def test_a_minute_has_so_many_lines_and_the_next_one_says_how_many_events_had_none() -> None:
    clock = Clock()
    events = EventLog(structlog.get_logger(), clock)
    lines = lines_of(clock, *[1] * (LINES_PER_MINUTE_MAX + 7), 30, events=events)
    assert len(lines) == LINES_PER_MINUTE_MAX
    assert len(lines_of(clock, 1, kind=LOST, events=events)) == 1, "another kind has lines of its own"
    clock.now_s += MINUTE_S
    first, second = lines_of(clock, 2, events=events)
    assert first["unlogged"] == 37
    assert "unlogged" not in second


def test_a_change_that_meets_the_end_of_a_minutes_lines_is_counted() -> None:
    clock = Clock()
    events = EventLog(structlog.get_logger(), clock)
    lines_of(clock, *[1] * (LINES_PER_MINUTE_MAX - 3), events=events)
    assert len(lines_of(clock, 10, events=events)) == 3
    clock.now_s += MINUTE_S
    assert lines_of(clock, 1, events=events)[0]["unlogged"] == 7
