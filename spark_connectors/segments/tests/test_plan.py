"""The bytes that each task reads."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.segments.plan import SealedRange, cut, narrowed, split
from spark_connectors.segments.sealed import Sealed, Segment
from spark_connectors.source.ranges import OffsetRange, Times
from spark_connectors.wire import TopicPartition

PLACE = TopicPartition("orders", 3)
ID = bytes(16)


def segment(base: int, end: int, size: int = 100, newest_ms: int = 0, *positions: tuple[int, int]) -> Segment:
    return Segment(base, end, size, newest_ms, "digest", (), positions, f"key-{base}")


def sealed(*segments: Segment, log_start: int = 0) -> Sealed:
    return Sealed(PLACE, ID, log_start, segments[-1].end if segments else log_start, segments, "s3://bucket")


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange(PLACE, ID, start, end)


def bounds_of_parts(one: OffsetRange) -> tuple[int, int, list[tuple[int, int, int]] | None]:
    parts = (
        [(each.segment.base, each.position, each.end) for each in one.parts] if isinstance(one, SealedRange) else None
    )
    return one.start, one.end, parts


TWO = sealed(segment(0, 10, 100, 0, (4, 40), (8, 80)), segment(10, 20))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 25, [(0, 20, [(0, 0, 100), (10, 0, 100)]), (20, 25, None)]),
        (0, 20, [(0, 20, [(0, 0, 100), (10, 0, 100)])]),
        (4, 8, [(4, 8, [(0, 40, 80)])]),
        (5, 9, [(5, 9, [(0, 40, 100)])]),
        (3, 4, [(3, 4, [(0, 0, 40)])]),
        (12, 13, [(12, 13, [(10, 0, 100)])]),
        (20, 25, [(20, 25, None)]),
    ],
)
def test_a_range_is_cut_where_the_log_is_sealed_up_to(
    start: int, end: int, expected: list[tuple[int, int, list[tuple[int, int, int]] | None]]
) -> None:
    assert [bounds_of_parts(one) for one in cut(wanted(start, end), TWO)] == expected


def test_offsets_below_the_log_start_are_fetched_so_that_their_loss_is_noticed() -> None:
    found = cut(wanted(2, 15), sealed(segment(0, 10), segment(10, 20), log_start=5))
    assert [bounds_of_parts(one) for one in found] == [(2, 5, None), (5, 15, [(0, 0, 100), (10, 0, 100)])]


def test_segments_of_another_topic_of_this_name_are_not_read() -> None:
    found = cut(OffsetRange(PLACE, bytes(15) + b"x", 0, 20), TWO)
    assert [bounds_of_parts(one) for one in found] == [(0, 20, None)]


def test_segments_without_a_record_that_is_late_enough_are_left_out() -> None:
    known = sealed(segment(0, 10, 100, 5), segment(10, 20, 100, 7), segment(20, 30, 100, 6), segment(30, 40, 100, 4))
    [found] = cut(wanted(0, 40), known, Times(6))
    assert bounds_of_parts(found) == (0, 40, [(10, 0, 100), (20, 0, 100)])
    assert cut(wanted(0, 40), known, Times(8)) == []
    [behind] = cut(wanted(35, 50), known, Times(8))
    assert bounds_of_parts(behind) == (40, 50, None)
    assert bounds_of_parts(cut(wanted(0, 40), known, Times(-1))[0])[2] == [(base, 0, 100) for base in (0, 10, 20, 30)]


def test_segments_of_unknown_times_are_read() -> None:
    """The tier's manifest of version 0.1 does not tell the times of batches that sarama wrote."""
    known = sealed(segment(0, 10, 100, 5), segment(10, 20, 100, -1))
    [found] = cut(wanted(0, 20), known, Times(8))
    assert bounds_of_parts(found)[2] == [(10, 0, 100)]


def test_segments_without_a_record_that_is_early_enough_are_left_out_where_that_is_known() -> None:
    bases = {0: 7, 10: -1, 20: 5}
    known = sealed(*(segment(base, base + 10)._replace(min_timestamp_ms=least) for base, least in bases.items()))
    [found] = cut(wanted(0, 30), known, Times(before_ms=6))
    assert bounds_of_parts(found)[2] == [(10, 0, 100), (20, 0, 100)]
    [found] = cut(wanted(0, 30), known, Times(before_ms=5))
    assert bounds_of_parts(found)[2] == [(10, 0, 100)]


def test_segments_with_out_of_order_timestamps_are_not_pruned() -> None:
    """A late first or maximal timestamp of a producer shows nothing about its other timestamps."""
    known = sealed(segment(0, 10, 100, 9), segment(10, 20, 100, 9)._replace(min_timestamp_ms=8))
    [found] = cut(wanted(0, 20), known, Times(before_ms=3))
    assert bounds_of_parts(found)[2] == [(0, 0, 100)]


def test_a_segment_is_split_at_places_where_batches_begin() -> None:
    [whole] = cut(wanted(0, 20), TWO)
    assert isinstance(whole, SealedRange)
    assert [bounds_of_parts(one) for one in split(whole, 100)] == [(0, 10, [(0, 0, 100)]), (10, 20, [(10, 0, 100)])]
    assert [bounds_of_parts(one) for one in split(whole, 60)] == [
        (0, 4, [(0, 0, 40)]),
        (4, 10, [(0, 40, 100)]),
        (10, 20, [(10, 0, 100)]),
    ]
    assert [bounds_of_parts(one)[:2] for one in split(whole, 1)] == [(0, 4), (4, 8), (8, 10), (10, 20)]
    assert split(whole, 200) == [whole]


ranges = st.lists(st.tuples(st.integers(1, 20), st.lists(st.integers(1, 9), max_size=5)), min_size=1, max_size=6)


@given(ranges, st.integers(0, 40), st.integers(1, 60), st.integers(1, 300))
def test_tasks_follow_each_other_and_read_no_less_than_their_offsets(
    sizes: list[tuple[int, list[int]]], first: int, size: int, most_bytes: int
) -> None:
    segments, base = [], 0
    for offsets, steps in sizes:
        places = sorted({(base + step, 10 * step) for step in steps if step < offsets})
        segments.append(segment(base, base + offsets, 10 * offsets, 0, *places))
        base += offsets
    for one in cut(wanted(first, first + size), sealed(*segments)):
        if not isinstance(one, SealedRange):
            assert one.start >= base
            continue
        tasks = split(one, most_bytes)
        assert sum(task.size_bytes for task in tasks) >= one.size_bytes
        assert [tasks[0].start, tasks[-1].end] == [one.start, one.end]
        assert all(before.end == after.start for before, after in pairwise(tasks))
        for task in tasks:
            assert task.size > 0
            held = {offset for part in task.parts for offset in _held(part.segment.base, part.position, part.end)}
            assert held >= set(range(task.start, task.end))
            narrow = narrowed(task, task.start, task.start + 1)
            assert set(_held(narrow.parts[0].segment.base, *narrow.parts[0][2:])) >= {task.start}


def _held(base: int, position: int, end: int) -> range:
    """Offsets of these bytes; each offset has ten bytes."""
    return range(base + position // 10, base + end // 10)
