"""Filters that Spark pushes down for a batch: conditions on one column each, all of which must hold.

They apply in three places. Partitions with another topic or number are not planned, and ranges are limited to the
wanted offsets. For a minimal time, ListOffsets finds the first record that is as late, and the range begins there. And
tasks drop rows, because each row costs the JVM a microsecond. Spark applies all filters again: unknown ones are
ignored, and no row is dropped that might match.

A maximal time does not shorten a range: timestamps of producers have no order, so an early record may follow later
ones. A minimal time does, because all records before the first late one are too early.

Nulls follow SQL: a comparison with null is null, and so is its negation. A row with a null condition is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.records.columns import COLUMNS
from spark_connectors.source.ranges import OffsetRange, Times

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_PLANNED: Final = ("topic", "partition")  # columns with one value in a whole range


class Operator(StrEnum):
    """Operators, named as the classes of pyspark.sql.datasource."""

    EQUAL = "EqualTo"
    SAME = "EqualNullSafe"
    IN = "In"
    ABOVE = "GreaterThan"
    AT_LEAST = "GreaterThanOrEqual"
    BELOW = "LessThan"
    AT_MOST = "LessThanOrEqual"
    IS_NULL = "IsNull"
    IS_NOT_NULL = "IsNotNull"
    STARTS = "StringStartsWith"
    ENDS = "StringEndsWith"
    CONTAINS = "StringContains"


_OPERATORS: Final = {str(one): one for one in Operator}
_COMPARED: Final[Mapping[Operator, Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    Operator.EQUAL: pc.equal,
    Operator.ABOVE: pc.greater,
    Operator.AT_LEAST: pc.greater_equal,
    Operator.BELOW: pc.less,
    Operator.AT_MOST: pc.less_equal,
}
_SEARCHED: Final[Mapping[Operator, Callable[..., pa.Array]]] = {
    Operator.STARTS: pc.starts_with,
    Operator.ENDS: pc.ends_with,
    Operator.CONTAINS: pc.match_substring,
}


class Interval(NamedTuple):
    """Whole numbers from `first` to `last`; None: no bound."""

    first: int | None = None
    last: int | None = None

    def cut(self, start: int, end: int) -> tuple[int, int]:
        """The part of [start, end) within the interval."""
        first = start if self.first is None else max(start, self.first)
        return first, end if self.last is None else min(end, self.last + 1)


@dataclass(frozen=True)
class Condition:
    """`column operator value`, or its negation. Values have the column's type, times are in µs; IN has a tuple."""

    column: str
    operator: Operator
    value: Any = None
    is_negated: bool = False

    def truth(self, values: pa.Array) -> pa.Array:
        """Truth for each value of the column: true, false, or null."""
        found = self._truth(values)
        return pc.invert(found) if self.is_negated else found

    def _truth(self, values: pa.Array) -> pa.Array:
        match self.operator:
            case Operator.IS_NOT_NULL:
                return pc.is_valid(values)
            case Operator.IS_NULL:
                return pc.is_null(values)
            case Operator.SAME if self.value is None:
                return pc.is_null(values)
            case Operator.SAME:
                return pc.fill_null(pc.equal(values, pa.scalar(self.value, values.type)), False)
            case Operator.IN:
                return self._is_in(values)
            case Operator.STARTS | Operator.ENDS | Operator.CONTAINS:
                return _SEARCHED[self.operator](values, self.value)
        return _COMPARED[self.operator](values, pa.scalar(self.value, values.type))

    def _is_in(self, values: pa.Array) -> pa.Array:
        """Truth of IN. If the list has a null, a value that is not found gives null, because it may equal the null."""
        known = pa.array([one for one in self.value if one is not None], values.type)
        otherwise = pa.scalar(None if None in self.value else False, pa.bool_())
        found = pc.if_else(pc.is_in(values, value_set=known), True, otherwise)
        return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))

    def interval(self) -> Interval:
        """Numbers that may meet the condition; others do not."""
        if self.is_negated or self.value is None:
            return Interval()
        match self.operator:
            case Operator.EQUAL | Operator.SAME:
                return Interval(self.value, self.value)
            case Operator.IN:
                known = [one for one in self.value if one is not None]
                return Interval(min(known), max(known)) if known else Interval()
            case Operator.ABOVE:
                return Interval(first=self.value + 1)
            case Operator.AT_LEAST:
                return Interval(first=self.value)
            case Operator.BELOW:
                return Interval(last=self.value - 1)
            case Operator.AT_MOST:
                return Interval(last=self.value)
        return Interval()


@dataclass(frozen=True)
class Filters:
    """Conditions that a wanted row meets, all of them."""

    conditions: tuple[Condition, ...] = ()

    def planned(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Ranges limited to wanted offsets. `is_earliest` stays, because retention at the start of such a range is no
        loss.
        """
        found = []
        for one in ranges:
            if self._is_wanted(one):
                start, end = one.start, one.end
                for condition in self._on("offset"):
                    start, end = condition.interval().cut(start, end)
                found.append(replace(one, start=start, end=end))
        return found

    @property
    def since_ms(self) -> int | None:
        """The minimal time of wanted records, in ms, the unit of records."""
        firsts_us = [condition.interval().first for condition in self._on("timestamp")]
        return max((-(-first_us // 1000) for first_us in firsts_us if first_us is not None), default=None)

    @property
    def times(self) -> Times:
        """The times of all wanted records."""
        lasts_us = [condition.interval().last for condition in self._on("timestamp")]
        before_ms = min((last_us // 1000 + 1 for last_us in lasts_us if last_us is not None), default=None)
        return Times(self.since_ms, before_ms)

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Wanted rows of a batch; the batch itself if all are wanted."""
        truths = [one.truth(batch.column(one.column)) for one in self.conditions if one.column not in _PLANNED]
        if not truths:
            return batch
        truth = reduce(pc.and_, truths)
        return batch if truth.true_count == batch.num_rows else batch.filter(truth)

    def _is_wanted(self, one: OffsetRange) -> bool:
        topics, partitions = pa.array([one.place.topic], COLUMNS["topic"]), pa.array([one.place.partition], pa.int32())
        values = dict(zip(_PLANNED, (topics, partitions), strict=True))
        return all(condition.truth(values[condition.column])[0].as_py() for condition in self._on(*_PLANNED))

    def _on(self, *columns: str) -> list[Condition]:
        return [one for one in self.conditions if one.column in columns]


NO_FILTERS: Final = Filters()

_PYTHON: Final = {
    pa.binary(): bytes,
    pa.string(): str,
    pa.int32(): int,
    pa.int64(): int,
    COLUMNS["timestamp"]: datetime,
}


def condition_of(pushed: Any) -> Condition | None:
    """Condition of one of Spark's filters; None if it is not supported."""
    name = type(pushed).__name__
    if name == "Not":
        found = condition_of(pushed.child)
        return found and replace(found, is_negated=not found.is_negated)
    operator = _OPERATORS.get(name)
    if operator is None or len(pushed.attribute) != 1:
        return None
    (column,) = pushed.attribute
    kind = COLUMNS.get(column)
    if kind not in _PYTHON or (operator in _SEARCHED and kind != pa.string()):
        return None
    value = getattr(pushed, "value", None)
    try:
        if operator is not Operator.IN:
            return Condition(column, operator, _checked(value, kind))
        # A setting of Spark decides about null in an empty list.
        return Condition(column, operator, tuple(_checked(one, kind) for one in value)) if value else None
    except (TypeError, OverflowError, pa.ArrowInvalid):
        return None


def _checked(value: Any, kind: pa.DataType) -> Any:
    """A value of the type, or None. Raises TypeError, OverflowError, ArrowInvalid."""
    if value is None:
        return None
    if type(value) is not _PYTHON[kind]:
        raise TypeError(f"{value!r} is no {kind}")
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND  # raises TypeError without a time zone
    return pa.scalar(value, kind).as_py()


def filters_of(pushed: Iterable[Any]) -> Filters:
    """Supported conditions of Spark's filters."""
    conditions = map(condition_of, pushed)
    return Filters(tuple(one for one in conditions if one is not None))
