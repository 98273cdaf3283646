"""Retention decisions, as in UnifiedLog.deleteOldSegments."""

import pytest

from engine.log_config import CleanupPolicy, LogConfig
from engine.stats import Reason
from engine.upkeep.retention import OldSegment, may_make_room, removal_reasons, to_make_room

SIZE, TIME, LOG_START = Reason.SIZE, Reason.TIME, Reason.LOG_START


def segments(*sizes_and_times: tuple[int, int]) -> list[OldSegment]:
    """Segments of ten offsets each."""
    return [OldSegment(10 * number, size, at_ms) for number, (size, at_ms) in enumerate(sizes_and_times, 1)]


def config(*policy: CleanupPolicy, **fields: int) -> LogConfig:
    limits = {"retention_ms": -1, "retention_size_bytes": -1, **fields}
    return LogConfig(cleanup_policy=frozenset(policy or [CleanupPolicy.DELETE]), **limits)  # type: ignore[arg-type]


THREE = segments((100, 1000), (100, 3000), (100, 2000))


@pytest.mark.parametrize(
    ("age_ms", "now_ms", "expected"),
    [
        (500, 1500, []),  # not older than that
        (500, 1501, [TIME]),
        (500, 3500, [TIME]),  # the third is old enough, but there is a younger one before it
        (500, 3501, [TIME, TIME, TIME]),
        (0, 1000, []),
        (-1, 10**15, []),
        (500, 0, []),  # timestamps of the future
    ],
)
def test_by_time(age_ms: int, now_ms: int, expected: list[Reason]) -> None:
    assert removal_reasons(THREE, config(retention_ms=age_ms), 0, 30, now_ms) == expected


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(300, []), (299, []), (201, []), (200, [SIZE]), (100, [SIZE] * 2), (99, [SIZE] * 2), (0, [SIZE] * 3), (-1, [])],
)
def test_by_size_at_least_that_much_is_kept(size_bytes: int, expected: list[Reason]) -> None:
    assert removal_reasons(THREE, config(retention_size_bytes=size_bytes), 0, 30, 0) == expected


def test_time_retention_applies_to_segments_that_size_retention_leaves() -> None:
    assert removal_reasons(THREE, config(retention_size_bytes=200, retention_ms=0), 0, 30, 3001) == [SIZE, TIME, TIME]


def test_nothing_at_or_above_the_high_watermark() -> None:
    old = config(retention_ms=0)
    assert removal_reasons(THREE, old, 0, 29, 9999) == [TIME, TIME]
    assert removal_reasons(THREE, old, 0, 9, 9999) == []
    assert removal_reasons(THREE, config(retention_size_bytes=0), 0, 20, 9999) == [SIZE, SIZE]


def test_an_empty_active_segment_stays() -> None:
    assert removal_reasons(segments((100, 1000), (0, -1)), config(retention_ms=0), 0, 20, 9999) == [TIME]
    assert removal_reasons(segments((0, -1)), config(retention_ms=0, retention_size_bytes=0), 0, 10, 9999) == []


@pytest.mark.parametrize("policy", [CleanupPolicy.DELETE, CleanupPolicy.COMPACT])
def test_segments_below_the_log_start_are_removed_under_any_cleanup_policy(policy: CleanupPolicy) -> None:
    assert removal_reasons(THREE, config(policy), 20, 30, 0) == [LOG_START, LOG_START]
    assert removal_reasons(THREE, config(policy), 19, 30, 0) == [LOG_START]
    assert removal_reasons(THREE, config(policy), 30, 30, 0) == [LOG_START, LOG_START], "the active one stays"


def test_a_compacted_topic_ignores_retention_limits_unless_its_policy_includes_delete() -> None:
    limits = {"retention_ms": 0, "retention_size_bytes": 0}
    assert removal_reasons(THREE, config(CleanupPolicy.COMPACT, **limits), 0, 30, 9999) == []
    assert (
        removal_reasons(THREE, config(CleanupPolicy.COMPACT, CleanupPolicy.DELETE, **limits), 0, 30, 9999) == [SIZE] * 3
    )


def test_room_is_made_of_topics_that_only_delete() -> None:
    assert may_make_room(config())
    assert not may_make_room(config(CleanupPolicy.COMPACT))
    assert not may_make_room(config(CleanupPolicy.COMPACT, CleanupPolicy.DELETE))


@pytest.mark.parametrize(
    ("wanted_bytes", "expected"),
    [(0, [0, 0, 0]), (1, [0, 1, 0]), (101, [1, 1, 0]), (201, [1, 2, 0]), (301, [2, 2, 0]), (10**6, [3, 2, 0])],
)
def test_room_is_made_of_the_oldest_first(wanted_bytes: int, expected: list[int]) -> None:
    others = segments((100, 500), (100, 1500))
    assert to_make_room([THREE, others, []], wanted_bytes) == expected
