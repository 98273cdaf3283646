"""The sides of a comparison: a log, or the files of a table. Tasks read a part of a side and return sums of its rows.

Ranges that differ are read again, as `search` says, until the differences are known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet, types

from spark_connectors.jobs.comparison.search import (
    NO_SUMS,
    CellRead,
    Columns,
    Difference,
    Search,
    SpanFilter,
    Sums,
    added,
    sums_of,
    total,
)
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.spans import Span, joined
from spark_connectors.jobs.table_rows import Form, RawForm
from spark_connectors.jobs.tables.api import Table
from spark_connectors.jobs.topic_log import TopicLog, rows_in
from spark_connectors.jobs.workers import outcomes
from spark_connectors.locations import opened
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange

DEAD: Final = 1 << 32  # added to the partitions of dead letters, which are compared beside the rows
_RAW: Final = RawForm()
_HEADERS: Final = "headers"
_ROWS: Final = 16_384  # of a file, read at a time
_ANYWHERE: Final = (-(1 << 63), (1 << 63) - 1)
_SCHEME: Final = re.compile(r"^(file:/+|[A-Za-z][A-Za-z0-9+.-]*://)")


class Bounds(NamedTuple):
    """Lowest and highest partition and offset of a row group, by its statistics; without statistics, any."""

    partitions: tuple[int, int]
    offsets: tuple[int, int]

    def may_have(self, spans: Sequence[Span]) -> bool:
        """Whether the row group may have a row within one of the spans."""
        (first, last), (least, greatest) = self
        return any(first <= one.partition <= last and one.start <= greatest and least < one.end for one in spans)


class Reading(NamedTuple):
    """Result of a task: sums, numbers of rows, dead letters and skipped rows, and `bounds` of each row group."""

    sums: Sums
    rows: int
    dead: int = 0
    skipped: int = 0
    bounds: tuple[Bounds, ...] = ()


class Part(Protocol):
    """A part of a side that a task reads."""

    @property
    def size(self) -> int:
        """Number of offsets, for progress."""

    def read(self) -> Reading: ...


def report_difference(one: Difference, report: Report) -> None:
    is_dead, partition = divmod(one.partition, DEAD)
    report.add(**{one.kind: one.rows})
    of = "dead letters" if is_dead else "rows"
    report.found(kind=one.kind, of=of, partition=partition, first=one.first, last=one.last, rows=one.rows)


def report_unexamined(search: Search, report: Report) -> None:
    """Report the spans that differ and were not compared offset by offset."""
    for one in joined(search.unexamined):
        is_dead, partition = divmod(one.partition, DEAD)
        report.add(offsets_unexamined=one.size)
        of = "dead letters" if is_dead else "rows"
        report.found(kind="differs somewhere", of=of, partition=partition, first=one.start, last=one.end - 1)


class Side(Protocol):
    """A side of a comparison, on the driver."""

    def parts(self, request: CellRead) -> Sequence[Part]:
        """All parts that have to be read for the request."""

    def has_read(self, part: Part, reading: Reading) -> None:
        """Take the result of one part."""

    def starts(self) -> Mapping[int, int]:
        """Current start of each partition that can lose rows: see `Search.take`."""


def compare(search: Search, left: Sequence[Side], right: Sequence[Side], session: Session) -> Iterator[Difference]:
    """All differences, as they are found. Several sides on the left or right together have the rows of one. Raises the
    errors of parts.
    """
    sides = [*left, *right]
    while (request := search.next_read) is not None:
        tasks = [(number, part) for number, side in enumerate(sides) for part in side.parts(request)]
        size = sum(part.size for _, part in tasks)
        sums = [NO_SUMS for _ in sides]
        done = rows = 0
        for (number, part), reading in outcomes(session.workers, _read, tasks):
            sums[number] = added(sums[number], reading.sums)
            sides[number].has_read(part, reading)
            done, rows = done + part.size, rows + reading.rows
            session.progress.update("compared" if request.width > 1 else "looked at one by one", done, size, rows)
        yield from search.take(added(*sums[: len(left)]), added(*sums[len(left) :]), _starts(sides))


def _starts(sides: Sequence[Side]) -> dict[int, int]:
    """The highest start of each partition."""
    found: dict[int, int] = {}
    for side in sides:
        for partition, start in side.starts().items():
            found[partition] = max(start, found.get(partition, 0))
    return found


def _read(task: tuple[int, Part]) -> Reading:
    """Read a part; the number of its side is ignored."""
    _, part = task
    return part.read()


def columns_of(form: Form) -> Columns:
    prefix = "" if isinstance(form, RawForm) else "_"
    return Columns(f"{prefix}partition", f"{prefix}offset", form.digested)


@dataclass(frozen=True)
class LogPart:
    """A range of a log. Its rows are compared like rows of a table of that form, within `spans`. Dead letters are
    compared within `dead_spans`.
    """

    options: SourceOptions
    wanted: OffsetRange
    form: Form
    columns: Columns
    spans: tuple[Span, ...]
    dead_spans: tuple[Span, ...]
    width: int

    @property
    def size(self) -> int:
        """See Part."""
        return self.wanted.size

    def read(self) -> Reading:
        """See Part. Raises the errors of a query's task."""
        counts = Counter[str]()
        sums = total(self._sums(counts))
        return Reading(sums, counts["rows"], counts["dead"], counts["skipped"])

    def _sums(self, counts: Counter[str]) -> Iterator[Sums]:
        span_filter, dead_span_filter = SpanFilter(self.spans), SpanFilter(self.dead_spans)
        for batch in rows_in(self.options, self.wanted):
            made = self.form.table_rows(batch)
            yield sums_of(made.rows, self.columns, span_filter, self.width)
            if made.dead is not None:
                yield sums_of(made.dead, columns_of(_RAW), dead_span_filter, self.width, DEAD)
                counts.update(dead=made.dead.num_rows)
            counts.update(rows=batch.num_rows, skipped=made.skipped)


class LogSide:
    """Side of a log. `rows` counts all rows; `dead` and `skipped` count those of them that the table does not have."""

    def __init__(self, log: TopicLog, form: Form, columns: Columns, tasks_min: int) -> None:
        """The side ends at the current end of the log."""
        self._log = log
        self._form = form
        self._columns = columns
        self._tasks_min = tasks_min
        self._ends = log.ends()
        self._read_count = 0
        self.rows = self.dead = self.skipped = 0

    def parts(self, request: CellRead) -> Sequence[Part]:
        """See Side."""
        self._read_count += 1
        spans = _with_base(request, 0), _with_base(request, DEAD)
        ranges = self._log.ranges(map(self._clipped, chain(*spans)), self._tasks_min)
        return [LogPart(self._log.options, one, self._form, self._columns, *spans, request.width) for one in ranges]

    def has_read(self, part: Part, reading: Reading) -> None:
        """See Side."""
        del part
        if self._read_count == 1:
            self.rows += reading.rows
            self.dead += reading.dead
            self.skipped += reading.skipped

    def starts(self) -> Mapping[int, int]:
        """See Side."""
        found = self._log.starts()
        return {**found, **{partition + DEAD: start for partition, start in found.items()}}

    def _clipped(self, span: Span) -> Span:
        end = min(span.end, self._ends.get(span.partition, 0))
        return span._replace(start=min(span.start, end), end=end)


@dataclass(frozen=True)
class FilePart:
    """A file of a table. Rows of one topic are compared within spans. `location` says how to open its file system."""

    location: str
    file: str
    topic: str
    form: Form
    partition_base: int
    spans: tuple[Span, ...]
    width: int

    @property
    def size(self) -> int:
        """See Part. Progress in a table is counted in rows."""
        return 0

    def read(self) -> Reading:
        """See Part. Raises OSError, and pyarrow's error if the file is no Parquet file."""
        system, _ = opened(self.location)
        with parquet.ParquetFile(_SCHEME.sub(_root_of, self.file), filesystem=system) as file:
            bounds = tuple(self._bounds(file.metadata))
            sums = total(self._sums(file, [index for index, one in enumerate(bounds) if one.may_have(self.spans)]))
            return Reading(sums, file.metadata.num_rows, bounds=bounds)

    def _sums(self, file: Any, row_groups: Sequence[int]) -> Iterator[Sums]:
        columns, span_filter = columns_of(self.form), SpanFilter(self.spans)
        topic = "topic" if isinstance(self.form, RawForm) else "_topic"
        wanted = dict.fromkeys([topic, columns.partition, columns.offset, *columns.compared])
        there = [name for name in wanted if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, row_groups=row_groups, columns=there):
            rows = batch.cast(pa.schema([one.with_type(_without_views(one.type)) for one in batch.schema]))
            rows = _with_nulls(rows.filter(pc.equal(rows.column(topic), self.topic)), columns.compared)
            if isinstance(self.form, RawForm):
                rows = _without_empty_headers(rows)
            yield sums_of(rows, columns, span_filter, self.width, self.partition_base)

    def _bounds(self, metadata: Any) -> Iterator[Bounds]:
        columns = columns_of(self.form)
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        leaves = [paths.index(name) for name in (columns.partition, columns.offset)]
        for number in range(metadata.num_row_groups):
            yield Bounds(*(_bounds_of(metadata.row_group(number).column(leaf).statistics) for leaf in leaves))


def _root_of(scheme: re.Match[str]) -> str:
    """Root of a path in pyarrow's file system of a URI's scheme."""
    return "/" if scheme[0].startswith("file:") else ""


def _bounds_of(statistics: Any) -> tuple[int, int]:
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else _ANYWHERE


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The type without views: some writers use views for text and bytes, which few functions accept."""
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([one.with_type(_without_views(one.type)) for one in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _with_nulls(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Add the missing columns as nulls: a file may be older than a column of its table."""
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows))
    return batch


def _without_empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace empty lists of headers by null: a log has no empty list, but a rewritten file may have one in place of
    null.
    """
    place = batch.schema.get_field_index(_HEADERS)
    headers = batch.column(place)
    if not types.is_list(headers.type):
        return batch
    has_some = pc.greater(pc.list_value_length(headers), 0)
    return batch.set_column(place, _HEADERS, pc.if_else(has_some, headers, pa.scalar(None, headers.type)))


class TableSide:
    """Side of the files that a table has now. `rows` counts all their rows, `compared` the rows within the compared
    spans.
    """

    def __init__(self, table: Table, form: Form, topic: str, partition_base: int = 0) -> None:
        """Raises TableRefused. A missing table has no rows."""
        is_there = table.schema() is not None
        self._files = table.files() if is_there else ()
        self._location = table.data_location() if is_there else ""
        self._form = form
        self._topic = topic
        self._partition_base = partition_base
        self._bounds: dict[str, tuple[Bounds, ...]] = {}
        self.rows = self.compared = 0

    def parts(self, request: CellRead) -> Sequence[Part]:
        """See Side."""
        spans = _with_base(request, self._partition_base)
        wanted = [file for file in self._files if self._may_have(file, spans)]
        return [
            FilePart(self._location, file, self._topic, self._form, self._partition_base, spans, request.width)
            for file in wanted
        ]

    def has_read(self, part: Part, reading: Reading) -> None:
        """See Side."""
        assert isinstance(part, FilePart)
        if part.file not in self._bounds:
            self._bounds[part.file] = reading.bounds
            self.rows += reading.rows
            self.compared += reading.sums.row_count

    def starts(self) -> Mapping[int, int]:
        """See Side."""
        return {}

    def _may_have(self, file: str, spans: Sequence[Span]) -> bool:
        bounds = self._bounds.get(file)
        return bounds is None or any(one.may_have(spans) for one in bounds)


def _with_base(request: CellRead, partition_base: int) -> tuple[Span, ...]:
    """Spans of the request that belong to the partition_base, with the partition numbers of the log."""
    return tuple(
        one._replace(partition=one.partition - partition_base)
        for one in request.spans
        if one.partition // DEAD == partition_base // DEAD
    )
