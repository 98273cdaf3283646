"""Rounds and their tasks: files get their size, and each offset is in one task."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs.export.rounds import Density, Stretch, Yield, is_worth_a_file, left_of, round_of, stretches
from spark_connectors.segments.plan import Part, SealedRange
from spark_connectors.segments.sealed import Segment
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import TopicPartition

TOPIC_ID = bytes(range(16))
FILE = 1000
KNOWN = Density(per_offset=10.0)  # a file has 100 offsets


def fetched(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), TOPIC_ID, start, end, is_earliest=True)


def sealed(start: int, end: int, size_bytes: int, partition: int = 0) -> SealedRange:
    """A range in one segment."""
    segment = Segment(start, end, size_bytes, 0, "digest")
    parts = (Part(segment, start, 0, size_bytes),)
    return SealedRange(TopicPartition("t", partition), TOPIC_ID, start, end, True, parts)


def edges(found: list[Stretch]) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in found]


def test_before_anything_is_known_each_partition_has_a_task_that_ends_by_itself() -> None:
    ranges = [fetched(0, 500), fetched(500, 900), fetched(0, 10, 1), fetched(3, 9, 2)]
    found = round_of(ranges, Density(), FILE, 2)
    assert edges(found) == [(0, 0, 900), (1, 0, 10)]
    assert all(one.is_open for one in found)


def test_task_has_the_offsets_of_one_file() -> None:
    found = round_of([fetched(0, 340)], KNOWN, FILE, 9)
    assert edges(found) == [(0, 0, 100), (0, 100, 200), (0, 200, 340)]
    assert not any(one.is_open for one in found)


def test_remainder_below_half_a_file_joins_the_previous_task() -> None:
    assert edges(round_of([fetched(0, 149)], KNOWN, FILE, 9)) == [(0, 0, 149)]
    assert edges(round_of([fetched(0, 150)], KNOWN, FILE, 9)) == [(0, 0, 100), (0, 100, 150)]


def test_partitions_have_tasks_in_turn() -> None:
    found = round_of([fetched(0, 900), fetched(0, 900, 1)], KNOWN, FILE, 5)
    assert edges(found) == [(0, 0, 100), (1, 0, 100), (0, 100, 200), (1, 100, 200), (0, 200, 300)]


def test_sealed_segments_are_divided_by_their_bytes() -> None:
    density = Density(per_offset=1e9, per_log_byte=0.5)
    ranges = [sealed(0, 10, 1000), sealed(10, 400, 1000), sealed(400, 500, 4000)]
    assert edges(round_of(ranges, density, FILE, 2)) == [(0, 0, 400), (0, 400, 450)]


def test_a_task_may_read_segments_and_then_fetch() -> None:
    ranges = [sealed(0, 50, 500), fetched(50, 400)]
    first, *_ = round_of(ranges, Density(10.0, 1.0), FILE, 9)
    assert [type(one) for one in first.ranges] == [SealedRange, OffsetRange]
    assert (first.start, first.end) == (0, 100)


def test_round_updates_the_density_per_offset_and_per_segment_byte() -> None:
    yields = [
        Yield(Stretch((fetched(0, 100),)), 50, 600),
        Yield(Stretch((sealed(0, 100, 1000, 1),)), 100, 400),
    ]
    assert Density().after(yields) == Density(1000 / 150, 0.4)


def test_a_round_without_files_shows_nothing() -> None:
    nothing = [Yield(Stretch((fetched(0, 100),)), 100, 0)]
    assert KNOWN.after(nothing) == KNOWN
    assert Density().after(nothing) == Density()


def test_remaining_ranges_begin_at_the_position_of_the_job() -> None:
    ranges = [fetched(0, 10), fetched(10, 20), fetched(5, 9, 1), fetched(0, 3, 2)]
    assert left_of(ranges, {0: 12, 1: 2, 2: 3}) == [fetched(12, 20), fetched(5, 9, 1)]
    assert left_of(ranges[:2], until=15) == [fetched(0, 10), fetched(10, 15)]


@pytest.mark.parametrize(("left", "is_worth"), [(499, False), (500, True)])
def test_half_a_file_is_worth_to_be_one(left: int, is_worth: bool) -> None:
    assert is_worth_a_file(left, FILE) is is_worth


@given(
    st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.integers(0, 3000)), min_size=1, max_size=8),
    st.floats(0.01, 3000),
    st.floats(0.01, 10) | st.none(),
)
def test_each_offset_is_in_one_task(
    sizes: list[tuple[int, bool, int]], per_offset: float, per_log_byte: float | None
) -> None:
    ranges: list[OffsetRange] = []
    end = 7
    for size, is_sealed, size_bytes in sizes:
        start, end = end, end + size
        ranges.append(sealed(start, end, size_bytes) if is_sealed else fetched(start, end))
    density = Density(per_offset, per_log_byte)
    found = list(stretches(ranges, density, FILE))
    parts = [part for one in found for part in one.ranges]
    assert (parts[0].start, parts[-1].end) == (7, end)
    assert all(one.end == other.start for one, other in pairwise(parts))
    assert all(part.size > 0 for part in parts)
    for one in found:
        expected_bytes = sum(map(density.expected_bytes, one.ranges))
        offset_bytes = max(density.expected_bytes(part) / part.size for part in one.ranges)
        assert expected_bytes < 1.5 * FILE + offset_bytes + 1
