"""Samples of a leader's log end: the time at which the leader's log ended at a follower's offset."""

import pytest

from engine.replica_log import NEVER_MS
from engine.replication.end_history import SAMPLES, EndHistory

SPAN_MS = 30_000
SPACING_MS = SPAN_MS // SAMPLES


def test_without_samples_no_end_is_known() -> None:
    assert EndHistory(SPAN_MS).reached_at_ms(100) == NEVER_MS


def test_reached_at_returns_the_time_of_the_newest_sample_at_or_below_the_offset() -> None:
    history = EndHistory(SPAN_MS)
    for number in range(4):
        history.note(100 * number, number * SPACING_MS)
    assert [history.reached_at_ms(offset) for offset in (0, 99, 100, 299, 300)] == [
        number * SPACING_MS for number in (0, 0, 1, 2, 3)
    ]
    assert history.reached_at_ms(-1) == NEVER_MS


def test_an_end_that_stays_is_one_sample_that_gets_newer() -> None:
    history = EndHistory(SPAN_MS)
    for number in range(10 * SAMPLES):
        history.note(7, number * SPACING_MS)
    assert history.reached_at_ms(7) == (10 * SAMPLES - 1) * SPACING_MS
    assert len(history._ends) == 1


@pytest.mark.parametrize("every_ms", [1, 100, SPACING_MS - 1, SPACING_MS, SPACING_MS + 1])
def test_a_lag_within_the_span_is_told_too_great_by_a_fifteenth_at_most(every_ms: int) -> None:
    """The log grows by one offset each millisecond; the follower lags behind by some time."""
    history = EndHistory(SPAN_MS)
    for now_ms in range(0, 3 * SPAN_MS, every_ms):
        history.note(now_ms, now_ms)
    assert len(history._ends) <= SAMPLES + 2, "it is bounded"
    for lag_ms in range(0, SPAN_MS - SPACING_MS, 777):
        reached_ms = now_ms - history.reached_at_ms(now_ms - lag_ms)
        assert lag_ms <= reached_ms < lag_ms + 2 * SPACING_MS
