"""Filters leave the same rows as SQL, for any rows, and reads become smaller."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Record
from spark_connectors.offsets import Offsets, TopicRecreated
from spark_connectors.records.columns import schema_of
from spark_connectors.source.bounds import Places
from spark_connectors.source.filters import NO_FILTERS, Condition, Filters, Operator, condition_of, filters_of
from spark_connectors.source.options import AtTimestamp, Limit, SourceOptions
from spark_connectors.source.planner import batch_ranges
from spark_connectors.source.reading import read_range
from spark_connectors.source.tests.world import FIRST_MS, World

Row = dict[str, Any]
NULL_ONLY = (Operator.IS_NULL, Operator.IS_NOT_NULL)
TEXT_ONLY = (Operator.STARTS, Operator.ENDS, Operator.CONTAINS)
NOT_IN_SPARK_MS = 2**63 - 1  # a timestamp that is null in Spark


def planned(world: World, *conditions: Condition, **options: str) -> list[tuple[str, int, int]]:
    chosen = world.options(**options)
    ranges = batch_ranges(chosen, world.places(chosen), Filters(conditions))
    return [(str(one.place), one.start, one.end) for one in ranges]


def rows(world: World, chosen: SourceOptions, filters: Filters = NO_FILTERS) -> list[Row]:
    """Rows of a query's tasks, in order. Timestamps are in µs."""
    schema = schema_of(chosen.columns)
    return [
        {**row, "timestamp": None if row["timestamp"] is None else microseconds(row["timestamp"])}
        for wanted in batch_ranges(chosen, world.places(chosen), filters)
        for batch in read_range(chosen, wanted, schema, filters, world.cluster(chosen))
        for row in batch.to_pylist()
    ]


def microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def world_of(*counts: int) -> World:
    """A topic with these numbers of records in its partitions, 10 ms apart."""
    world = World()
    logs = world.topic(partitions=len(counts)).logs
    for number, count in enumerate(counts):
        if count:
            logs[number].append(*[b"v"] * count)
    return world


def pushed(name: str, *path: str, **fields: Any) -> object:
    """A fake of one of Spark's filters."""
    return type(name, (), {"attribute": path, **fields})()


# --- results of SQL

COMPARED: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.ABOVE: operator.gt,
    Operator.AT_LEAST: operator.ge,
    Operator.BELOW: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.STARTS: str.startswith,
    Operator.ENDS: str.endswith,
    Operator.CONTAINS: str.__contains__,
}


def truth(condition: Condition, row: Row) -> bool | None:
    """Truth as in SQL."""
    found = plain_truth(condition.operator, row[condition.column], condition.value)
    return found if found is None or not condition.is_negated else not found


def plain_truth(name: Operator, mine: Any, theirs: Any) -> bool | None:
    if name in NULL_ONLY:
        return (mine is None) == (name is Operator.IS_NULL)
    if name is Operator.SAME:
        return bool(mine == theirs)
    if mine is None or theirs is None:
        return None
    if name is Operator.IN:
        return True if mine in theirs else (None if None in theirs else False)
    return bool(COMPARED[name](mine, theirs))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "key": st.sampled_from([b"", b"a", b"a\x00", b"\xff", None]),
    "value": st.sampled_from([b"", b"v", None]),
    "topic": st.sampled_from(["t", "tt", "u", ""]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-2, 15),
    "timestamp": st.integers(-5000, 9000),
    "timestampType": st.integers(0, 1),
}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(sorted(VALUES)))
    chosen = draw(st.sampled_from([one for one in Operator if column == "topic" or one not in TEXT_ONLY]))
    value = draw(VALUES[column])
    if chosen is Operator.IN:
        value = tuple(draw(st.lists(VALUES[column] | st.none(), min_size=1, max_size=3)))
    elif chosen in NULL_ONLY or (chosen not in TEXT_ONLY and draw(st.integers(0, 9)) == 0):
        value = None
    return Condition(column, chosen, value, draw(st.booleans()))


RECORDS = st.builds(
    Record, VALUES["key"], VALUES["value"], st.integers(0, 8) | st.sampled_from([-1, -2, NOT_IN_SPARK_MS])
)
LOGS = st.lists(st.lists(st.lists(RECORDS, min_size=1, max_size=4), max_size=4), min_size=1, max_size=3)
SPLITS: list[dict[str, str]] = [{}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "2"}]


@given(LOGS, st.lists(conditions(), min_size=1, max_size=3), st.sampled_from(SPLITS), st.integers(-2, 3))
def test_filtered_rows_equal_the_rows_that_sql_leaves(
    logs: list[list[list[Record]]], wanted: list[Condition], split: dict[str, str], start: int
) -> None:
    """Trap: timestamps have no order."""
    world = World()
    for log, batches in zip(world.topic(partitions=len(logs)).logs.values(), logs, strict=True):
        for batch in batches:
            log.add(*batch)
    if start >= 0:
        starts = {str(number): min(start, log.end) for number, log in world.topics["t"].logs.items()}
        split = {**split, "startingOffsets": json.dumps({"t": starts})}
    options = world.options(**split)
    expected = [row for row in rows(world, options) if all(truth(one, row) for one in wanted)]
    assert rows(world, options, Filters(tuple(wanted))) == expected


# --- less is read


def test_partitions_that_are_not_wanted_are_not_planned() -> None:
    world = world_of(10, 10, 10)
    assert planned(world, Condition("partition", Operator.IN, (0, 2, 9))) == [("t-0", 0, 10), ("t-2", 0, 10)]
    assert planned(world, Condition("partition", Operator.EQUAL, 1, is_negated=True)) == planned(
        world, Condition("partition", Operator.IN, (0, 2))
    )
    assert planned(world, Condition("topic", Operator.STARTS, "u")) == []


def test_offsets_that_are_not_wanted_are_not_planned() -> None:
    world = world_of(10, 4)
    wanted = (Condition("offset", Operator.ABOVE, 2), Condition("offset", Operator.AT_MOST, 6))
    assert planned(world, *wanted) == [("t-0", 3, 7), ("t-1", 3, 4)]
    assert planned(world, *wanted, minPartitions="5") == [("t-0", n, n + 1) for n in range(3, 7)] + [("t-1", 3, 4)]
    assert planned(world, Condition("offset", Operator.IN, (8, None, 5))) == [("t-0", 5, 9)]
    assert planned(world, Condition("offset", Operator.BELOW, 3), Condition("offset", Operator.ABOVE, 3)) == []


@pytest.mark.parametrize(
    ("condition", "start"),
    [
        (Condition("timestamp", Operator.AT_LEAST, 1000 * FIRST_MS + 20_000), 2),
        (Condition("timestamp", Operator.AT_LEAST, 1000 * FIRST_MS + 20_001), 3),
        (Condition("timestamp", Operator.ABOVE, 1000 * FIRST_MS + 20_000), 3),
        (Condition("timestamp", Operator.ABOVE, 1000 * FIRST_MS + 19_999), 2),
        (Condition("timestamp", Operator.EQUAL, 1000 * FIRST_MS + 50_000), 5),
        (Condition("timestamp", Operator.AT_MOST, 1000 * FIRST_MS + 50_000), 0),
        (Condition("timestamp", Operator.BELOW, 1000 * FIRST_MS + 50_000, is_negated=True), 0),
        (Condition("timestamp", Operator.AT_LEAST, -1000), 0),
    ],
)
def test_where_times_begin(condition: Condition, start: int) -> None:
    """Trap: an early record may follow any number of late ones, so a maximal time does not shorten a range."""
    assert planned(world_of(10), condition) == [("t-0", start, 10)]


@pytest.mark.parametrize(
    ("conditions", "times"),
    [
        ([], (None, None)),
        ([(Operator.ABOVE, 5_000)], (6, None)),
        ([(Operator.AT_LEAST, 5_000), (Operator.BELOW, 9_000)], (5, 9)),
        ([(Operator.AT_MOST, 9_000), (Operator.AT_MOST, 7_001)], (None, 8)),
        ([(Operator.BELOW, 7_001)], (None, 8)),
        ([(Operator.EQUAL, 7_000)], (7, 8)),
    ],
)
def test_between_which_times_all_is_that_is_wanted(
    conditions: list[tuple[Operator, int]], times: tuple[int | None, int | None]
) -> None:
    filters = Filters(tuple(Condition("timestamp", operator, value) for operator, value in conditions))
    assert filters.times == times


def test_times_that_are_not_there() -> None:
    assert planned(world_of(10, 3), Condition("timestamp", Operator.AT_LEAST, 1000 * FIRST_MS + 30_000)) == [
        ("t-0", 3, 10)
    ]


def test_a_batch_of_which_all_is_wanted_is_passed_on() -> None:
    world = world_of(10)
    options = world.options()
    (wanted,) = batch_ranges(options, world.places(options))
    (batch,) = read_range(options, wanted, schema_of(options.columns), cluster=world.cluster(options))
    for condition in (Condition("offset", Operator.AT_LEAST, 0), Condition("partition", Operator.EQUAL, 0)):
        assert Filters((condition,)).applied(batch) is batch


# --- losses between lookups


def test_range_with_lost_offsets_is_planned_despite_a_time_filter() -> None:
    """The lost record might have been wanted, so the task has to notice the loss."""
    world = world_of(10, 10)
    world.topics["t"].logs[0].delete_before(4)
    late = Condition("timestamp", Operator.AT_LEAST, 1000 * FIRST_MS + 60_000)
    starts = json.dumps({"t": {"0": 2, "1": 2}})
    assert planned(world, late, startingOffsets=starts) == [("t-0", 2, 10), ("t-1", 6, 10)]
    assert planned(world, late) == [("t-0", 6, 10), ("t-1", 6, 10)]


def test_filtered_range_is_still_marked_as_earliest() -> None:
    world = world_of(10)
    options = world.options()
    wanted = Filters((Condition("offset", Operator.AT_LEAST, 5),))
    assert [one.is_earliest for one in batch_ranges(options, world.places(options), wanted)] == [True]


def test_a_topic_that_is_created_again_meanwhile() -> None:
    world = world_of(10)
    options = world.options()

    class Meanwhile(Places):
        def at(self, limit: Limit, *, is_starting: bool) -> Offsets:
            if isinstance(limit, AtTimestamp):
                world.topic("t")
            return super().at(limit, is_starting=is_starting)

    wanted = Filters((Condition("timestamp", Operator.AT_LEAST, 0),))
    with pytest.raises(TopicRecreated):
        batch_ranges(options, Meanwhile(world.cluster(options), options, world.clock), wanted)


# --- filters of Spark

TIME = datetime(2026, 11, 25, 12, 0, 0, 5, timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("told", "condition"),
    [
        (pushed("EqualTo", "key", value=b"k"), Condition("key", Operator.EQUAL, b"k")),
        (pushed("In", "partition", value=(1, None)), Condition("partition", Operator.IN, (1, None))),
        (pushed("LessThan", "timestamp", value=TIME), Condition("timestamp", Operator.BELOW, 1795604400_000_005)),
        (pushed("IsNotNull", "headers"), None),
        (pushed("IsNotNull", "value"), Condition("value", Operator.IS_NOT_NULL)),
        (pushed("StringEndsWith", "topic", value="s"), Condition("topic", Operator.ENDS, "s")),
        (pushed("StringEndsWith", "key", value="s"), None),
        (pushed("EqualTo", "key", value="k"), None),
        (pushed("EqualTo", "offset", value=2.0), None),
        (pushed("EqualTo", "offset", value=True), None),
        (pushed("EqualTo", "offset", value=2**63), None),
        (pushed("EqualTo", "partition", value=2**31), None),
        (pushed("EqualTo", "timestamp", value=datetime(2026, 11, 25)), None),
        (pushed("In", "offset", value=()), None),
        (pushed("In", "offset", value=(1, "2")), None),
        (pushed("EqualTo", "headers", "key", value="a"), None),
        (pushed("EqualTo", "of_others", value=1), None),
        (pushed("AlwaysTrue"), None),
    ],
)
def test_spark_filters_become_conditions_or_are_ignored(told: object, condition: Condition | None) -> None:
    negation = type("Not", (), {"child": told})()
    assert condition_of(told) == condition
    assert condition_of(negation) == (condition and replace(condition, is_negated=True))
    assert filters_of([told, negation]) == Filters(tuple(filter(None, map(condition_of, (told, negation)))))
