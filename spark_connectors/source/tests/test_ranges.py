"""Division of ranges among tasks: each offset once, in order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.source.ranges import OffsetRange, divided, parts_of
from spark_connectors.wire import TopicPartition

ID = b"i" * 16


def of(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), ID, start, end)


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [one.size for one in ranges]


SOME = st.lists(st.tuples(st.integers(0, 10**12), st.integers(-5, 10**6)), max_size=8).map(
    lambda rows: [of(number, start, start + size) for number, (start, size) in enumerate(rows)]
)


@given(SOME, st.none() | st.integers(1, 50), st.none() | st.integers(10**4, 10**7))
def test_each_offset_is_read_once(ranges: list[OffsetRange], least: int | None, most: int | None) -> None:
    """Trap: the offset where two tasks meet belongs to the second one only."""
    found = divided(ranges, least, most)
    assert all(one.size > 0 for one in found)
    for whole in ranges:
        parts = [one for one in found if one.place == whole.place]
        assert sum(one.size for one in parts) == max(whole.size, 0)
        assert all(one.end == other.start for one, other in pairwise(parts))
        if parts:
            assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)
        if most is not None:
            assert all(one.size <= most for one in parts)
    assert [one.place for one in found] == sorted(one.place for one in found)


def test_without_a_wish_a_partition_is_a_task() -> None:
    assert divided([of(0, 0, 10), of(1, 5, 5), of(2, 7, 3)], None, None) == [of(0, 0, 10)]


@pytest.mark.parametrize(
    ("ranges", "least", "expected"),
    [  # as in KafkaOffsetRangeCalculatorSuite
        ([of(0, 0, 4)], 1, [4]),
        ([of(0, 0, 5)], 3, [1, 2, 2]),
        ([of(0, 0, 1), of(1, 0, 1)], 3, [1, 1]),
        ([of(0, 0, 5), of(1, 0, 5), of(2, 0, 5)], 4, [5, 5, 5]),
        ([of(0, 0, 4), of(1, 0, 20)], 3, [4, 10, 10]),
        ([of(0, 0, 10_000), of(1, 0, 1_000)], 10, [1111] * 8 + [1112] + [1000]),
    ],
)
def test_at_least_so_many(ranges: list[OffsetRange], least: int, expected: list[int]) -> None:
    assert sizes(divided(ranges, least, None)) == expected


@pytest.mark.parametrize(
    ("most", "least", "expected"), [(4, None, [3, 3, 4]), (10, None, [10]), (4, 2, [3, 3, 4]), (5, 4, [2, 3, 2, 3])]
)
def test_at_most_so_many_each(most: int, least: int | None, expected: list[int]) -> None:
    assert sizes(divided([of(0, 0, 10)], least, most)) == expected


def test_more_parts_than_offsets() -> None:
    assert sizes(parts_of(of(0, 3, 5), 7)) == [1, 1]


def test_parts_are_of_the_same() -> None:
    whole = OffsetRange(TopicPartition("t", 1), ID, 0, 2, is_earliest=True)
    assert all((part.topic_id, part.is_earliest) == (ID, True) for part in parts_of(whole, 2))
    assert str(whole) == "offsets 0 to 2 of t-1"
