"""Checks whether offsets can stay, and whether a target has the rows of its source."""

from __future__ import annotations

import pytest

from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.sides import Row, Side, Span, check_own, check_partitions, tail_of, why_not_kept


def side(topic: str, *spans: tuple[int, int]) -> Side:
    return Side(topic, bytes(16), {number: Span(*one) for number, one in enumerate(spans)})


def test_a_target_needs_as_many_partitions() -> None:
    source = side("a", (0, 1), (0, 1))
    check_partitions(source, side("b", (0, 0), (0, 0), (0, 0)))
    with pytest.raises(ImportRefused, match="a has 2 partitions, b has 1: add some"):
        check_partitions(source, side("b", (0, 0)))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ((0, 10), (0, 0), None),
        ((5, 10), (0, 0), None),
        ((5, 10), (5, 5), None),
        ((5, 10), (3, 3), None),
        ((5, 10), (5, 10), None),
        ((5, 10), (5, 7), None),
        ((7, 10), (5, 7), None),
        ((5, 10), (6, 6), "t-0 is empty, and has had offsets up to 6 before"),
        ((5, 10), (5, 11), "t-0 ends at offset 11, the source at 10"),
        ((8, 10), (5, 7), "t-0 ends at offset 7, and the source begins at 8 by now"),
    ],
)
def test_where_both_begin_and_end_tells_whether_offsets_can_stay(
    source: tuple[int, int], target: tuple[int, int], reason: str | None
) -> None:
    assert why_not_kept(side("s", source), side("t", target)) == reason
    assert why_not_kept(side("s", (0, 1), source), side("u", (0, 0), target)) == (
        None if reason is None else reason.replace("t-0", "u-1")
    )


def test_tail_is_the_last_offsets_that_both_sides_have() -> None:
    assert tail_of(Span(0, 100), Span(0, 50), 10) == (40, 50)
    assert tail_of(Span(45, 100), Span(0, 50), 10) == (45, 50)
    assert tail_of(Span(0, 100), Span(48, 50), 10) == (48, 50)
    assert tail_of(Span(50, 100), Span(0, 50), 10).is_empty
    assert tail_of(Span(60, 100), Span(0, 50), 10).is_empty


def rows(**values: bytes | None) -> list[Row]:
    return [{"offset": int(name[1:]), "value": value} for name, value in values.items()]


def test_target_with_rows_that_differ_from_its_source_is_refused() -> None:
    check_own("t-0", [], [], is_compacted=False)
    check_own("t-0", rows(o1=b"a", o2=None), rows(o1=b"a", o2=None), is_compacted=False)
    for theirs, ours, at in [
        (rows(o1=b"a"), rows(o1=b"b"), 1),
        (rows(o1=b"a", o2=b"b"), rows(o1=b"a"), 2),
        (rows(o1=b"a"), rows(o1=b"a", o3=b"b"), 3),
        (rows(o1=b""), rows(o1=None), 1),
    ]:
        with pytest.raises(ImportRefused, match=f"t-0 was not written by this import: offset {at} "):
            check_own("t-0", theirs, ours, is_compacted=False)


def test_compacted_topics_are_compared_by_the_rows_that_both_sides_have() -> None:
    assert check_own("t-0", rows(o1=b"a", o2=b"b"), rows(o2=b"b", o3=b"c"), is_compacted=True) == 1
    assert check_own("t-0", rows(o1=b"a"), [], is_compacted=True) == 0
    with pytest.raises(ImportRefused, match="no offset before its end is in the source"):
        check_own("t-0", rows(o1=b"a"), rows(o2=b"a"), is_compacted=True)
    with pytest.raises(ImportRefused, match="offset 2 "):
        check_own("t-0", rows(o1=b"a", o2=b"b"), rows(o2=b"x"), is_compacted=True)
