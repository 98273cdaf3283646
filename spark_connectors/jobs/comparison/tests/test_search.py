"""Each change of rows on one side is found and classified, and nothing else."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from spark_connectors.jobs.comparison.search import (
    NO_SUMS,
    CellRead,
    Columns,
    Difference,
    Kind,
    Limits,
    Search,
    SpanFilter,
    Sums,
    added,
    sums_of,
    total,
)
from spark_connectors.jobs.digest import LOG_COLUMNS
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.tests.logs import log_batch, log_row

COLUMNS = Columns("partition", "offset", LOG_COLUMNS)
SMALL = Limits(cells=8, width=4, narrowing=2, offsets=None)
EVERYWHERE = [Span(partition, 0, 100) for partition in range(3)]

Rows = list[dict[str, Any]]


def side(rows: Rows, request: CellRead, random: Any = None) -> Sums:
    """Sums of a side, read in batches of random rows."""
    rows, within, sums = list(rows), SpanFilter(request.spans), list[Sums]()
    if random is not None:
        random.shuffle(rows)
    while rows:
        count = len(rows) if random is None else random.randint(1, len(rows))
        sums.append(sums_of(log_batch(rows[:count]), COLUMNS, within, request.width))
        rows = rows[count:]
    return total(sums)


def compared(left: Rows, right: Rows, spans: list[Span], limits: Limits = SMALL, random: Any = None) -> Search:
    return searched(left, right, spans, limits, random)[0]


def searched(
    left: Rows, right: Rows, spans: list[Span], limits: Limits = SMALL, random: Any = None
) -> tuple[Search, list[Difference]]:
    search, found = Search(spans, limits), []
    while (request := search.next_read) is not None:
        assert sum(one.size // request.width for one in request.spans) <= limits.cells or len(request.spans) == 1
        found += search.take(side(left, request, random), side(right, request, random))
    return search, found


def differences_of(left: Rows, right: Rows) -> Counter[tuple[Kind, int, int]]:
    """The expected differences, one for each row."""
    found: Counter[tuple[Kind, int, int]] = Counter()
    values: dict[tuple[int, int], tuple[list[bytes], list[bytes]]] = {}
    for number, rows in enumerate((left, right)):
        for row in rows:
            values.setdefault((row["partition"], row["offset"]), ([], []))[number].append(row["value"])
    for place, (ours, theirs) in values.items():
        if not theirs:
            found[Kind.MISSING, *place] += len(ours)
        elif not ours:
            found[Kind.UNEXPECTED, *place] += len(theirs)
        elif set(ours) == set(theirs) and len(theirs) > len(ours):
            found[Kind.DOUBLED, *place] += len(theirs) - len(ours)
        elif ours != theirs:
            found[Kind.DIFFERENT, *place] += max(len(ours), len(theirs))
    return found


LOGS = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 99)), min_size=1, max_size=40).map(
    lambda places: [log_row(offset, partition=partition, value=b"%d" % offset) for partition, offset in sorted(places)]
)
DAMAGES = st.lists(st.tuples(st.sampled_from(["lose", "double", "damage", "move", "add"]), st.integers(0, 39)))


def damaged(rows: Rows, damages: list[tuple[str, int]]) -> Rows:
    rows = [dict(row) for row in rows]
    for what, number in damages:
        if not rows:
            break
        row = rows[number % len(rows)]
        match what:
            case "lose":
                rows.remove(row)
            case "double":
                rows.append(dict(row))
            case "damage":
                row["value"] = b"damaged"
            case "move":
                row["partition"] = (row["partition"] + 1) % 3
            case "add":
                rows.append(log_row(number + 60, partition=number % 3, value=b"added"))
    return rows


@given(LOGS, DAMAGES, st.randoms(use_true_random=False))
@example([log_row(offset) for offset in range(3)], [("double", 0), ("lose", 1)], None)
def test_search_finds_all_damaged_rows_and_no_others(left: Rows, damages: list[tuple[str, int]], random: Any) -> None:
    right = damaged(left, damages)
    search, found = searched(left, right, EVERYWHERE, SMALL, random)
    assert not search.unexamined
    expected = differences_of(left, right)
    rows: Counter[Kind] = Counter()
    for one in found:
        rows[one.kind] += one.rows
        inside = [place for place in expected if place[:2] == one[:2] and one.first <= place[2] <= one.last]
        assert one.rows == sum(expected.pop(place) for place in inside)
    assert not expected


@given(LOGS, st.randoms(use_true_random=False))
def test_sides_that_are_the_same_are_read_once(rows: Rows, random: Any) -> None:
    search = Search(EVERYWHERE, SMALL)
    request = search.next_read
    assert request is not None
    assert search.take(side(rows, request, random), side(rows, request, random)) == []
    assert search.next_read is None


def test_rows_outside_the_compared_spans_do_not_count() -> None:
    inside = [log_row(offset, partition=1) for offset in range(10, 20)]
    outside = [log_row(9, partition=1), log_row(20, partition=1), log_row(15, partition=0), log_row(5, partition=None)]
    assert searched(inside, inside + outside, [Span(1, 10, 20)])[1] == []


def test_adjacent_differences_of_one_kind_are_merged() -> None:
    rows = [log_row(offset, partition=1) for offset in range(0, 40, 2)]
    left = [row for row in rows if row["offset"] != 36]
    right = [row for row in rows if not 5 <= row["offset"] < 13]
    assert searched(left, right, EVERYWHERE, Limits())[1] == [
        Difference(Kind.MISSING, 1, 6, 12, 4),
        Difference(Kind.UNEXPECTED, 1, 36, 36, 1),
    ]


def test_offset_with_two_values_or_with_two_rows_on_the_left_is_different() -> None:
    left, other = [log_row(3)], log_row(3, value=b"other")
    assert searched(left, [*left, other], EVERYWHERE)[1] == [Difference(Kind.DIFFERENT, 1, 3, 3, 2)]
    assert searched([*left, *left], left, EVERYWHERE)[1] == [Difference(Kind.DIFFERENT, 1, 3, 3, 2)]


def test_search_examines_a_bounded_number_of_offsets_and_returns_unexamined_spans() -> None:
    left = [log_row(offset, partition=partition) for partition in range(3) for offset in range(100)]
    limits = SMALL._replace(offsets=20)
    search, found = searched(left, [], EVERYWHERE, limits)
    looked_at = sum(one.rows for one in found)
    assert 0 < looked_at <= 20
    assert looked_at + sum(one.size for one in search.unexamined) == 300
    assert {one.partition for one in found} == {0, 1, 2}


def test_offsets_deleted_during_the_search_do_not_count() -> None:
    table = [log_row(offset, partition=1) for offset in range(10)]
    log = table[6:]
    search = Search([Span(1, 0, 10)], SMALL)
    found = []
    while (request := search.next_read) is not None:
        found += search.take(side(log, request), side(table, request), {1: 5 if request.width > 1 else 6})
        assert all(one.start >= 5 for one in (search.next_read.spans if search.next_read else ()))
    assert found == []


def test_nothing_is_looked_at_where_there_is_nothing() -> None:
    assert Search([]).next_read is None
    assert Search([Span(0, 5, 5)]).next_read is None
    assert NO_SUMS.row_count == 0


def test_cells_are_wider_where_there_are_many_offsets() -> None:
    request = Search([Span(0, 0, 1 << 40), Span(1, 7, 8)]).next_read
    assert request is not None
    assert request.width == 1 << 23


def test_rows_of_another_kind_are_kept_apart_and_added_up() -> None:
    batch, within = log_batch([log_row(offset) for offset in range(3)]), SpanFilter([Span(1, 0, 10)])
    dead = sums_of(batch, COLUMNS, within, 1, partition_base=100)
    assert dead.partitions.tolist() == [101, 101, 101]
    assert total([sums_of(batch, COLUMNS, within, 4), dead]).rows.tolist() == [3, 1, 1, 1]
    many = [sums_of(batch, COLUMNS, within, 1 + number % 2) for number in range(5000)]
    assert [each.tolist() for each in total(many)] == [each.tolist() for each in added(*many)]
    assert total(many).row_count == 15_000
