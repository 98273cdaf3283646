"""Comparison of a table with the log that a job exported to it: each row once, and no other rows.

The log decides: offsets that retention deleted are not compared, but counted. Values in JSON are decoded again. Each
value has to be in the table, be in the table of dead letters, or be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_connectors.jobs.comparison.search import Kind, Limits, Search
from spark_connectors.jobs.comparison.sides import (
    DEAD,
    LogSide,
    TableSide,
    columns_of,
    compare,
    report_difference,
    report_unexamined,
)
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.table_rows import Form, RawForm
from spark_connectors.jobs.tables.api import Table
from spark_connectors.jobs.tables.errors import TableRefused
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.source.options import Edge

_EVERYTHING: Final = Limits(offsets=None)
_RAW: Final = RawForm()


@dataclass(frozen=True)
class Exported:
    """Tables of an export. `dead_letters`: table of rows that cannot be in `table`; None: all rows can."""

    job: str
    table: Table
    form: Form
    dead_letters: Table | None


class Plan(NamedTuple):
    """Spans to compare, the number of offsets that the log no longer has, and (partition, exported end, log end) of
    logs that end too early.
    """

    spans: tuple[Span, ...]
    offsets_gone: int
    beyond: tuple[tuple[int, int, int], ...]


def planned(
    exported: Mapping[int, int], firsts: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> Plan:
    """Plan by partition: end of the export, first offset of the job (0 if unknown), start and end of the log."""
    spans, gone, beyond = [], 0, []
    for partition, exported_end in sorted(exported.items()):
        first = firsts.get(partition, 0)
        start = max(first, starts.get(partition, 0))
        end = ends.get(partition, 0)
        gone += max(min(start, exported_end) - first, 0)
        if exported_end > end:
            beyond.append((partition, exported_end, end))
        spans.append(Span(partition, start, max(start, min(exported_end, end))))
    return Plan(tuple(spans), gone, tuple(beyond))


def verify(log: TopicLog, exported: Exported, report: Report, session: Session, *, is_compacted: bool = False) -> None:
    """Verify an export and fill the report. `is_compacted`: rows that only the table has are no difference. Raises
    TableRefused, LimitRefused, WireError, and the errors of tasks.
    """
    plan = _plan(log, exported, report)
    left = LogSide(log, exported.form, columns_of(exported.form), session.workers.count)
    rows = TableSide(exported.table, exported.form, log.topic)
    right, spans = [rows], list(plan.spans)
    if exported.dead_letters is not None:
        letters = TableSide(exported.dead_letters, _RAW, log.topic, DEAD)
        right, spans = [rows, letters], [*spans, *(one._replace(partition=one.partition + DEAD) for one in spans)]
    if session.is_dry_run:
        return
    search = Search(spans, _EVERYTHING if is_compacted else Limits())
    for one in compare(search, [left], right, session):
        if is_compacted and one.kind is Kind.UNEXPECTED:
            report.add(compacted=one.rows)
        else:
            report_difference(one, report)
    report_unexamined(search, report)
    report.add(log_rows=left.rows, dead=left.dead, skipped=left.skipped)
    report.add(table_rows=rows.compared, table_rows_elsewhere=rows.rows - rows.compared)
    report.add(dead_letters=sum(one.compared for one in right[1:]))


def _plan(log: TopicLog, exported: Exported, report: Report) -> Plan:
    """Look up the progress of the job first. Offsets that the job exports meanwhile lie behind it, and are not
    compared.
    """
    schema = exported.table.schema()
    if schema is None:
        raise TableRefused("there is no such table")
    if missing := [name for name in exported.form.schema.names if name not in schema.names]:
        raise TableRefused(f"the table has no column {', '.join(missing)}: it was exported in another form")
    offsets = exported.table.progress(exported.job).offsets
    mine = {place.partition: offset for place, offset in offsets.items() if place.topic_id == log.topic_id}
    if not mine:
        raise TableRefused(f"job {exported.job} has exported nothing of topic {log.topic} to it")
    starting = log.options.starting
    firsts = {} if starting is Edge.EARLIEST else log.at(starting)
    plan = planned(mine, firsts, log.starts(), log.ends())
    report.add(offsets=sum(one.size for one in plan.spans), offsets_gone=plan.offsets_gone)
    for partition, exported_end, end in plan.beyond:
        report.found(kind="beyond the log", partition=partition, exported_to=exported_end, log_end=end)
    return plan
