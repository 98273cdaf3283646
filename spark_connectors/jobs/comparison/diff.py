"""Comparison of two topics, of one cluster or two: by offset, or in order.

Offsets that retention deleted at the beginning of one topic are not compared, but counted. At the end no row may be
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_connectors.jobs.comparison.in_order import Parting, Rows, partings
from spark_connectors.jobs.comparison.search import Columns, Search
from spark_connectors.jobs.comparison.sides import LogSide, compare, report_difference, report_unexamined
from spark_connectors.jobs.digest import row_hashes
from spark_connectors.jobs.report import FINDINGS_MAX, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.table_rows import RawForm
from spark_connectors.jobs.topic_log import TopicLog, rows_in
from spark_connectors.jobs.workers import outcomes
from spark_connectors.source.options import SourceOptions
from spark_connectors.source.ranges import OffsetRange

_RAW: Final = RawForm()
_PLACE: Final = ("partition", "offset")
COMPARABLE: Final = tuple(name for name in _RAW.digested if name not in _PLACE)


class Edges(NamedTuple):
    """Offsets of one partition in both topics."""

    left: Span
    right: Span


def diff(left: TopicLog, right: TopicLog, compared: Sequence[str], report: Report, session: Session) -> None:
    """Compare rows by offset, in some of the COMPARABLE columns, and fill the report. Raises the errors of tasks."""
    edges = edges_of(left, right, report)
    spans = [
        Span(one.left.partition, max(one.left.start, one.right.start), max(one.left.end, one.right.end))
        for one in edges
    ]
    report.add(offsets=sum(max(one.size, 0) for one in spans))
    report.add(offsets_gone=sum(abs(one.left.start - one.right.start) for one in edges))
    if session.is_dry_run:
        return
    columns = Columns(*_PLACE, ("offset", *compared))
    sides = [LogSide(log, _RAW, columns, session.workers.count) for log in (left, right)]
    search = Search(spans)
    for one in compare(search, sides[:1], sides[1:], session):
        report_difference(one, report)
    report_unexamined(search, report)
    report.add(left_rows=sides[0].rows, right_rows=sides[1].rows)


def diff_in_order(left: TopicLog, right: TopicLog, compared: Sequence[str], report: Report, session: Session) -> None:
    """Compare the rows of each partition in order, whatever their offsets are; one task for each partition."""
    edges = edges_of(left, right, report)
    size = sum(one.left.size for one in edges)
    report.add(offsets=size)
    if session.is_dry_run:
        return
    parts = [
        InOrder(left.options, _ranges(left, one.left), right.options, _ranges(right, one.right), tuple(compared))
        for one in edges
    ]
    done = rows = 0
    for (one, _), found in outcomes(session.workers, _read_in_order, list(zip(edges, parts, strict=True))):
        done += one.left.size
        rows += found.counts["left_rows"] + found.counts["right_rows"]
        session.progress.update("compared", done, size, rows)
        report.add(**found.counts)
        _report_partings(one.left.partition, found, report)


def edges_of(left: TopicLog, right: TopicLog, report: Report) -> list[Edges]:
    """Offsets of the partitions that both topics have. A partition that only one of them has is a finding."""
    starts, ends = (left.starts(), right.starts()), (left.ends(), right.ends())
    for here, there, side in ((ends[0], ends[1], "right"), (ends[1], ends[0], "left")):
        for partition in sorted(here.keys() - there.keys()):
            report.found(kind="no such partition", side=side, partition=partition)
    both = sorted(ends[0].keys() & ends[1].keys())
    return [Edges(*(Span(one, start[one], end[one]) for start, end in zip(starts, ends, strict=True))) for one in both]


@dataclass(frozen=True)
class InOrder:
    """Ranges to read of one partition in both topics."""

    left_options: SourceOptions
    left: tuple[OffsetRange, ...]
    right_options: SourceOptions
    right: tuple[OffsetRange, ...]
    compared: tuple[str, ...]


class InOrderFound(NamedTuple):
    """Result of one partition. `partings` are the first ones, `left_out` is the number of the others."""

    counts: Counter[str]
    partings: list[Parting]
    left_out: int


def _read_in_order(task: tuple[Edges, InOrder]) -> InOrderFound:
    """Compare one partition in order. Raises the errors of a query's task."""
    _, part = task
    counts, found, left_out = Counter[str](left_rows=0, right_rows=0), list[Parting](), 0
    left = _rows(part.left_options, part.left, part.compared, counts, "left_rows")
    right = _rows(part.right_options, part.right, part.compared, counts, "right_rows")
    for one in partings(left, right):
        counts[one.kind] += one.rows
        if len(found) < FINDINGS_MAX:
            found.append(one)
        else:
            left_out += 1
    return InOrderFound(counts, found, left_out)


def _rows(
    options: SourceOptions, ranges: Sequence[OffsetRange], compared: Sequence[str], counts: Counter[str], name: str
) -> Iterator[Rows]:
    for one in ranges:
        for batch in rows_in(options, one):
            counts[name] += batch.num_rows
            yield Rows(row_hashes(_RAW.table_rows(batch).rows, compared), batch.column("offset").to_numpy())


def _ranges(log: TopicLog, span: Span) -> tuple[OffsetRange, ...]:
    return tuple(sorted(log.ranges([span]), key=lambda one: one.start))


def _report_partings(partition: int, found: InOrderFound, report: Report) -> None:
    for one in found.partings:
        left_first, left_last = one.left or (None, None)
        right_first, right_last = one.right or (None, None)
        report.found(
            kind=one.kind,
            partition=partition,
            rows=one.rows,
            left_first=left_first,
            left_last=left_last,
            right_first=right_first,
            right_last=right_last,
        )
    report.findings_left_out += found.left_out
