"""Compaction plans: which logs are due, and how segments are grouped."""

from dataclasses import replace

from engine.compaction.cleaning_plan import groups, work_on
from engine.log_config import CleanupPolicy, LogConfig
from engine.logs.segments.segment import Segment
from testkit.logs import NOW_MS

COMPACT = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_size_bytes=100)


def segment(base_offset: int, size_bytes: int, *, timestamp_ms: int = NOW_MS, count: int = 10) -> Segment:
    made = Segment(base_offset)
    made.size_bytes, made.end_offset = size_bytes, base_offset + count
    made.first_timestamp_ms = made.max_timestamp_ms = timestamp_ms
    return made


FOUR = [segment(10 * number, 30) for number in range(4)]


def test_the_share_of_dirty_bytes_decides() -> None:
    work = work_on(FOUR, COMPACT, 0, 10, 30, NOW_MS)
    assert work.segments == FOUR[:3]
    assert (work.first_dirty_offset, work.dirty_ratio, work.is_due) == (10, 2 / 3, True)
    assert not work_on(FOUR, replace(COMPACT, min_cleanable_dirty_ratio=2 / 3), 0, 10, 30, NOW_MS).is_due
    assert not work_on(FOUR, COMPACT, 0, 20, 30, NOW_MS).is_due
    assert not work_on(FOUR, replace(COMPACT, min_cleanable_dirty_ratio=0.0), 0, 30, 30, NOW_MS).is_due


def test_an_offset_that_cannot_be_is_taken_for_the_log_start() -> None:
    for clean_to in (5, 41):
        assert work_on(FOUR, COMPACT, 10, clean_to, 30, NOW_MS).first_dirty_offset == 10


def test_nothing_from_the_segment_of_the_high_watermark_on() -> None:
    assert work_on(FOUR, COMPACT, 0, 0, 10, NOW_MS).segments == FOUR[:1]
    assert not work_on(FOUR, COMPACT, 0, 0, 0, NOW_MS).is_due


def test_records_younger_than_min_compaction_lag_keep_their_segment_and_later_ones_dirty() -> None:
    lag = replace(COMPACT, min_compaction_lag_ms=1000)
    segments = [segment(0, 30, timestamp_ms=NOW_MS - 1000), segment(10, 30, timestamp_ms=NOW_MS - 999), segment(20, 30)]
    assert work_on(segments, lag, 0, 0, 20, NOW_MS).segments == segments[:1]
    assert work_on(segments, lag, 0, 20, 20, NOW_MS).segments == segments[:2], "what is clean has been let in before"


def test_old_records_do_not_wait_for_the_share() -> None:
    lazy = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    segments = [segment(0, 30, timestamp_ms=NOW_MS - 1001), segment(10, 30), segment(20, 30)]
    assert work_on(segments, lazy, 0, 0, 20, NOW_MS).is_due
    assert not work_on(segments, lazy, 0, 10, 20, NOW_MS).is_due
    assert not work_on(segments, replace(lazy, max_compaction_lag_ms=1001), 0, 0, 20, NOW_MS).is_due


def test_neighbours_that_fit_become_one() -> None:
    assert groups(FOUR, COMPACT) == [FOUR[:3], FOUR[3:]]
    far = [segment(0, 1), segment(10, 1, count=2**31), segment(2**31 + 10, 1)]
    assert groups(far, COMPACT) == [far[:1], far[1:2], far[2:]]
    many = [segment(10 * number, 1) for number in range(4)]
    for one in many:
        one.entries = 5
    assert groups(many, replace(COMPACT, segment_index_size_bytes=120)) == [many[:2], many[2:]]
