"""Tasks of comparisons and audits run on executors without this project's modules."""

from __future__ import annotations

import json
from pathlib import Path

from spark_connectors.jobs.audit import driver as audit
from spark_connectors.jobs.comparison import diff, sides
from spark_connectors.jobs.comparison.search import CellRead
from spark_connectors.jobs.comparison.sides import DEAD, LogSide, TableSide, columns_of
from spark_connectors.jobs.comparison.tests.exports import directory_table, export
from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.report import Report
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, JsonForm
from spark_connectors.jobs.tests.tiers import TOPIC, log_of, options_of, tier_of
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.tests.by_value import printed_elsewhere

VALUES = [b'{"id": %d}' % number for number in range(20)]
LOOK = CellRead((Span(0, 0, 21), Span(DEAD, 0, 21)), 1)


def test_parts_of_sides(tmp_path: Path) -> None:
    bucket, table = tier_of(tmp_path / "tier", [log_of([*VALUES, b"dead"])]), directory_table(tmp_path / "table")
    form = JsonForm(declared(json.dumps([{"name": "id", "type": "int64"}]), taken=ORIGIN_COLUMNS))
    with TopicLog(options_of(bucket)) as log:
        export(log, table, form)
        parts = [*LogSide(log, form, columns_of(form), 1).parts(LOOK), *TableSide(table, form, TOPIC).parts(LOOK)]

    def task() -> object:
        return [sides._read((0, part)).sums.totals.tolist() for part in parts]

    assert len(parts) > 2
    assert printed_elsewhere(task) == repr(task())


def test_partitions_in_order_and_segments(tmp_path: Path) -> None:
    left, right = tier_of(tmp_path / "left", [log_of(VALUES)]), tier_of(tmp_path / "right", [log_of(VALUES[1:])])
    with TopicLog(options_of(left)) as ours, TopicLog(options_of(right)) as theirs:
        edges = diff.Edges(*(Span(0, 0, log.ends()[0]) for log in (ours, theirs)))
        ranges = [tuple(log.ranges([span])) for log, span in zip((ours, theirs), edges, strict=True)]
        both = diff.InOrder(ours.options, ranges[0], theirs.options, ranges[1], ("value",))
        (segment, *_) = audit._Planner(ours, Report("audit", {}), has_records=True).tasks([Span(0, 0, 20)])

    def task() -> object:
        return diff._read_in_order((edges, both)).partings, audit._audited(segment)

    assert printed_elsewhere(task) == repr(task())
