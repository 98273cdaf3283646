from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs.comparison.in_order import Parting, Rows, partings
from spark_connectors.jobs.comparison.search import Kind

WINDOW = 8
HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=60)


def chunks(hashes: list[int], random: Any = None, first: int = 0) -> Iterator[Rows]:
    """Rows in chunks of random sizes, with offsets that differ from those of the other side."""
    begin = 0
    while begin < len(hashes):
        end = len(hashes) if random is None else random.randint(begin + 1, len(hashes))
        yield Rows(np.array(hashes[begin:end], np.uint64), np.arange(first + begin, first + end))
        begin = end


def compared(left: list[int], right: list[int], random: Any = None) -> list[Parting]:
    return list(partings(chunks(left, random), chunks(right, random, 1000), WINDOW))


@given(HASHES, st.randoms(use_true_random=False))
def test_rows_in_the_same_order_do_not_part(hashes: list[int], random: Any) -> None:
    assert compared(hashes, hashes, random) == []


@given(st.lists(st.integers(0, 9), max_size=40), st.lists(st.integers(0, 9), max_size=40), st.randoms())
def test_partings_exist_if_sides_differ_and_account_for_all_rows(
    left: list[int], right: list[int], random: Any
) -> None:
    found = compared(left, right, random)
    rows: Counter[Kind] = Counter()
    for one in found:
        rows[one.kind] += one.rows
    assert bool(found) == (left != right)
    assert len(left) - rows[Kind.MISSING] + rows[Kind.UNEXPECTED] + rows[Kind.DOUBLED] == len(right)


@pytest.mark.parametrize("at", [0, 3, 7, 8, 9, 20, 29])
def test_change_of_one_row_is_missing_different_unexpected_or_doubled(at: int) -> None:
    rows = list(range(100, 130))
    lost = rows[:at] + rows[at + 1 :]
    assert compared(rows, lost) == [Parting(Kind.MISSING, 1, (at, at), None)]
    damaged = [*rows[:at], 5, *rows[at + 1 :]]
    assert compared(rows, damaged) == [Parting(Kind.DIFFERENT, 1, (at, at), (1000 + at, 1000 + at))]
    (one,) = compared(rows, [*rows[:at], 5, *rows[at:]])
    assert one == Parting(Kind.UNEXPECTED, 1, None, (1000 + at, 1000 + at))
    if at < 29:
        (one,) = compared(rows, [*rows[: at + 1], *rows[at:]])
        assert (one.kind, one.rows, one.left) == (Kind.DOUBLED, 1, None)


def test_they_are_found_together_again_within_the_window() -> None:
    rows = list(range(100))
    assert compared(rows, rows[:20] + rows[27:]) == [Parting(Kind.MISSING, 7, (20, 26), None)]


def test_rows_behind_the_end_of_the_other_are_told_at_once() -> None:
    rows = list(range(100))
    assert compared(rows, rows[:50]) == [Parting(Kind.MISSING, 50, (50, 99), None)]
    assert compared(rows[:50], rows) == [Parting(Kind.UNEXPECTED, 50, None, (1050, 1099))]
    assert compared([], []) == []
