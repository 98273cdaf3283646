"""Size of the next batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.source.admission import Delay, limited
from spark_connectors.wire import TopicPartition


def at(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("starts", "latest", "most", "expected"),
    [
        (at(0), at(100), 30, at(30)),
        (at(0), at(20), 30, at(20)),
        (at(0, 0), at(100, 300), 40, at(10, 30)),
        (at(0, 0), at(1, 1000), 10, at(1, 9)),  # a small partition is not starved
        (at(5, 5), at(5, 5), 10, at(5, 5)),
        (at(5, 5), at(5, 25), 10, at(5, 15)),
        (at(9), at(7), 10, at(7)),  # a loss, which the planner reports
        (at(0), at(10, 10), 5, at(5, 10)),  # a partition without a known start
        ({}, {}, 5, {}),
    ],
)
def test_a_limit(
    starts: dict[TopicPartition, int], latest: dict[TopicPartition, int], most: int, expected: dict[TopicPartition, int]
) -> None:
    assert limited(starts, latest, most) == expected


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**40)), min_size=1, max_size=20), st.integers(1, 2**40)
)
def test_limited_batch_advances_each_partition_and_stays_near_the_limit(rows: list[tuple[int, int]], most: int) -> None:
    starts, latest = at(*(start for start, _ in rows)), at(*(start + size for start, size in rows))
    found = limited(starts, latest, most)
    assert all(starts[place] <= found[place] <= latest[place] for place in latest)
    assert all(found[place] > starts[place] for place in latest if latest[place] > starts[place])
    assert sum(found[place] - starts[place] for place in latest) <= most * 1.000001 + len(rows)


def test_the_first_batch_waits_for_nothing() -> None:
    delay = Delay(60)
    assert not delay.holds(at(0), at(1), 10, now_s=5)
    assert delay.holds(at(1), at(2), 10, now_s=6)


def test_a_batch_waits_until_there_is_enough() -> None:
    delay = Delay(60)
    delay.holds(at(0), at(0), 10, now_s=5)
    assert delay.holds(at(0, 0), at(4, 5), 10, now_s=6)
    assert not delay.holds(at(0, 0), at(5, 5), 10, now_s=7)
    assert delay.holds(at(5, 5), at(5, 6), 10, now_s=66)
    assert not delay.holds(at(5, 5), at(5, 6), 10, now_s=67)  # a minute after the last one
    assert delay.holds(at(5, 6), at(5, 7), 10, now_s=126)
