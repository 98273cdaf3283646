"""Verification of tables in a directory against topics in a tier without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.jobs.comparison.tests.exports import (
    JOB,
    Change,
    directory_table,
    export,
    unchanged,
    with_twice,
    with_value,
    without,
    written,
)
from spark_connectors.jobs.comparison.verify import Exported, Plan, planned, verify
from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.report import JobOutcome, ProgressLine, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, Form, JsonForm, RawForm, Tombstones
from spark_connectors.jobs.tables.api import Table
from spark_connectors.jobs.tables.errors import TableRefused
from spark_connectors.jobs.tests.tiers import TOPIC, log_of, options_of, tier_of
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.jobs.workers import OneByOne
from spark_connectors.source.tests.world import Log
from testkit.bucket_broker import Bucket

RAW = RawForm()
VALUES = [b'{"id": %d}' % number for number in range(40)]
COLUMNS = declared(json.dumps([{"name": "id", "type": "int64"}]), taken=ORIGIN_COLUMNS)
QUIET = ProgressLine(lambda _: None, lambda: 0.0)


class Scene:
    """A topic, its table, and its table of dead letters."""

    def __init__(self, directory: Path, logs: list[Log], form: Form = RAW, change: Change = unchanged) -> None:
        self.bucket: Bucket = tier_of(directory / "tier", logs)
        self.form = form
        self.table: Table = directory_table(directory / "table")
        self.letters: Table | None = None if isinstance(form, RawForm) else directory_table(directory / "letters")
        with self.log() as log:
            export(log, self.table, form, change, self.letters)

    def log(self, **options: str) -> TopicLog:
        return TopicLog(options_of(self.bucket, **options))

    def report(self, *, is_compacted: bool = False, is_dry_run: bool = False, **options: str) -> Report:
        report = Report("verify", {})
        exported = Exported(JOB, self.table, self.form, self.letters)
        with self.log(**options) as log:
            verify(log, exported, report, Session(OneByOne(), QUIET, is_dry_run), is_compacted=is_compacted)
        return report


def finding(kind: str, offset: int, rows: int = 1, **more: Any) -> dict[str, Any]:
    found = {"kind": kind, "of": "rows", "partition": 0, "first": offset, "last": offset, "rows": rows}
    return {**found, **more}


def test_a_table_that_has_the_rows_of_the_log(tmp_path: Path) -> None:
    report = Scene(tmp_path, [log_of(VALUES), log_of([*VALUES[:7], None])]).report()
    assert (report.outcome, report.findings) == (JobOutcome.DONE, [])
    counts = {"offsets": 48, "log_rows": 48, "table_rows": 48, "table_rows_elsewhere": 0}
    assert report.counts == {**counts, "offsets_gone": 0, "dead": 0, "skipped": 0, "dead_letters": 0}


@pytest.mark.parametrize("offset", [0, 13, 39])
def test_changed_row_is_found_as_missing_doubled_or_different(tmp_path: Path, offset: int) -> None:
    for number, (change, kind) in enumerate(
        [(without(offset), "missing"), (with_twice(offset), "doubled"), (with_value(offset, b"x"), "different")]
    ):
        report = Scene(tmp_path / str(number), [log_of(VALUES)], change=change).report()
        assert report.outcome is JobOutcome.DIFFERS
        assert report.findings == [finding(kind, offset)]
        assert report.counts[kind] == 1


def test_a_row_that_the_log_has_not_is_unexpected_unless_the_log_is_compacted(tmp_path: Path) -> None:
    log = log_of(VALUES[:5])
    log.leave_gap(3)
    log.append(b"x")

    def change(rows: pa.Table) -> pa.Table:
        row = {**rows.to_pylist()[0], "offset": 6}
        return pa.concat_tables([rows, pa.Table.from_pylist([row], rows.schema)])

    scene = Scene(tmp_path, [log], change=change)
    assert scene.report().findings == [finding("unexpected", 6)]
    report = scene.report(is_compacted=True)
    assert (report.outcome, report.counts["compacted"]) == (JobOutcome.DONE, 1)


def test_verify_counts_offsets_deleted_by_retention_and_does_not_compare_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [log_of(VALUES)], change=without(3))
    scene.bucket.shed(20)
    report = scene.report()
    assert report.outcome is JobOutcome.DONE
    counts = ("offsets", "offsets_gone", "log_rows", "table_rows", "table_rows_elsewhere")
    assert [report.counts[name] for name in counts] == [20, 20, 20, 20, 19]


def test_table_rows_of_other_topics_or_unexported_offsets_do_not_count(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [log_of(VALUES)])
    rows = pa.concat_tables(pq.read_table(file) for file in scene.table.files()).to_pylist()
    more = [{**rows[0], "topic": "another"}, {**rows[0], "offset": 40}, {**rows[0], "partition": 1}]
    before = scene.table.progress(JOB)
    files = written(scene.table, pa.Table.from_pylist(more, RAW.schema))
    scene.table.commit(JOB, files, before, before.advanced([]))
    report = scene.report()
    assert (report.outcome, report.counts["table_rows_elsewhere"]) == (JobOutcome.DONE, 3)


def test_json_is_decoded_once_more_and_dead_letters_are_looked_for(tmp_path: Path) -> None:
    values = [*VALUES[:9], b"no JSON", None, b'{"id": "x"}', *VALUES[9:20]]
    scene = Scene(tmp_path, [log_of(values)], JsonForm(COLUMNS))
    report = scene.report()
    assert report.outcome is JobOutcome.DONE
    counts = ("log_rows", "table_rows", "dead", "dead_letters", "skipped")
    assert [report.counts[name] for name in counts] == [23, 20, 3, 3, 0]
    scene.letters = directory_table(tmp_path / "none")
    assert scene.report().findings == [finding("missing", 9, 3, of="dead letters", last=11)]


def test_rows_without_a_value_may_be_skipped(tmp_path: Path) -> None:
    form = JsonForm(COLUMNS, Tombstones.SKIP)
    report = Scene(tmp_path, [log_of([*VALUES[:3], None, b"dead"])], form).report()
    counts = ("log_rows", "table_rows", "dead", "dead_letters", "skipped")
    assert report.outcome is JobOutcome.DONE
    assert [report.counts[name] for name in counts] == [5, 3, 1, 1, 1]


def test_a_row_of_json_that_is_another_is_named(tmp_path: Path) -> None:
    def change(rows: pa.Table) -> pa.Table:
        ids = [None if one == 4 else one for one in rows.column("id").to_pylist()]
        return rows.set_column(0, "id", pa.array(ids, pa.int64()))

    assert Scene(tmp_path, [log_of(VALUES)], JsonForm(COLUMNS), change).report().findings == [finding("different", 4)]


def test_a_job_that_began_later_is_compared_from_there_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [log_of(VALUES)], change=lambda rows: rows.slice(8))
    assert scene.report().findings == [finding("missing", 0, 8, last=7)]
    report = scene.report(startingOffsets=json.dumps({TOPIC: {"0": 8}}))
    assert (report.outcome, report.counts["offsets"]) == (JobOutcome.DONE, 32)


def test_log_that_ends_before_the_exported_offset_is_a_finding(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [log_of(VALUES)])
    scene.bucket = tier_of(tmp_path / "lost", [log_of(VALUES[:30])])
    assert scene.report().findings == [{"kind": "beyond the log", "partition": 0, "exported_to": 40, "log_end": 30}]


def test_a_dry_run_reads_no_rows(tmp_path: Path) -> None:
    report = Scene(tmp_path, [log_of(VALUES)], change=without(3)).report(is_dry_run=True)
    assert (report.outcome, report.counts) == (JobOutcome.DONE, {"offsets": 40, "offsets_gone": 0})


def test_table_in_another_form_or_absent_or_without_an_export_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, [log_of(VALUES)])
    scene.form = JsonForm(COLUMNS)
    with pytest.raises(TableRefused, match="it was exported in another form"):
        scene.report()
    scene.form, scene.table = RAW, directory_table(tmp_path / "none")
    with pytest.raises(TableRefused, match="there is no such table"):
        scene.report()
    scene.table.create(RAW.schema)
    with pytest.raises(TableRefused, match="has exported nothing of topic orders"):
        scene.report()


PARTITIONS = st.dictionaries(st.integers(0, 3), st.integers(0, 20), max_size=4)


@given(PARTITIONS, PARTITIONS, PARTITIONS, PARTITIONS)
def test_each_offset_is_compared_or_gone_or_beyond_the_log(
    exported: dict[int, int], firsts: dict[int, int], starts: dict[int, int], sizes: dict[int, int]
) -> None:
    ends = {partition: starts.get(partition, 0) + size for partition, size in sizes.items()}
    plan = planned(exported, firsts, starts, ends)
    for span in plan.spans:
        partition = span.partition
        wanted = range(firsts.get(partition, 0), exported[partition])
        there = range(starts.get(partition, 0), ends.get(partition, 0))
        assert [offset for offset in wanted if offset in there] == list(range(span.start, span.end))
    assert {one[0] for one in plan.beyond} == {one for one, end in exported.items() if end > ends.get(one, 0)}


def test_a_plan() -> None:
    assert planned({0: 10, 1: 10, 2: 10}, {1: 4}, {0: 3, 1: 2, 2: 10}, {0: 12, 1: 7, 2: 10}) == Plan(
        (Span(0, 3, 10), Span(1, 4, 7), Span(2, 10, 10)), 13, ((1, 10, 7),)
    )
