"""Counters by topic."""

from __future__ import annotations

from tiering.statistics import TierStatistics, TopicCounters

FIRST, SECOND = b"first", b"second"


def test_topics_are_counted_by_themselves_and_together() -> None:
    topics = TopicCounters()
    topics.of(FIRST).copied_segments += 2
    topics.of(SECOND).copied_segments += 3
    topics.of(SECOND).fetched_bytes += 5
    assert topics.of(FIRST) == TierStatistics(copied_segments=2)
    assert topics.total == TierStatistics(copied_segments=5, fetched_bytes=5)


def test_a_total_never_falls() -> None:
    topics = TopicCounters()
    topics.of(FIRST).copied_segments += 2
    topics.of(SECOND).copied_segments += 3
    topics.keep({SECOND})
    topics.of(FIRST).copied_segments += 1  # there is another one by that id
    assert topics.of(FIRST) == TierStatistics(copied_segments=1)
    assert topics.total == TierStatistics(copied_segments=6)
