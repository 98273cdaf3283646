"""Comparison of topics in two tiers, without brokers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.jobs.cli import diff as command
from spark_connectors.jobs.cli.common import Refused
from spark_connectors.jobs.comparison.diff import COMPARABLE, diff, diff_in_order
from spark_connectors.jobs.report import FINDINGS_MAX, JobOutcome, ProgressLine, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.tests.tiers import log_of, options_of, tier_of
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.jobs.workers import OneByOne
from spark_connectors.source.tests.world import Log
from testkit.bucket_broker import Bucket

VALUES = [b"%d" % number for number in range(40)]
QUIET = ProgressLine(lambda _: None, lambda: 0.0)


def report_of(left: Bucket, right: Bucket, *compared: str, compare: Any = diff, is_dry_run: bool = False) -> Report:
    report = Report("diff", {})
    with TopicLog(options_of(left)) as ours, TopicLog(options_of(right)) as theirs:
        compare(ours, theirs, compared or COMPARABLE, report, Session(OneByOne(), QUIET, is_dry_run))
    return report


def tiers(directory: Path, left: list[Log], right: list[Log]) -> tuple[Bucket, Bucket]:
    return tier_of(directory / "left", left), tier_of(directory / "right", right, batches_each=3)


@pytest.mark.parametrize("compare", [diff, diff_in_order])
def test_topics_that_have_the_same_rows(tmp_path: Path, compare: Any) -> None:
    logs = [log_of(VALUES), log_of([*VALUES, None]), Log()]
    others = [log_of(VALUES, batch_rows=7), log_of([*VALUES, None], batch_rows=3), Log()]
    report = report_of(*tiers(tmp_path, logs, others), compare=compare)
    assert (report.outcome, report.findings) == (JobOutcome.DONE, [])
    assert (report.counts["left_rows"], report.counts["right_rows"]) == (81, 81)


def test_rows_that_differ_are_named_and_columns_may_be_chosen(tmp_path: Path) -> None:
    changed = [*VALUES[:11], b"x", *VALUES[12:], b"more"]
    buckets = tiers(tmp_path, [log_of(VALUES)], [log_of(changed)])
    report = report_of(*buckets)
    assert report.findings == [
        {"kind": "different", "of": "rows", "partition": 0, "first": 11, "last": 11, "rows": 1},
        {"kind": "unexpected", "of": "rows", "partition": 0, "first": 40, "last": 40, "rows": 1},
    ]
    assert len(report_of(*buckets, "key", "headers").findings) == 1


def test_diff_counts_offsets_deleted_on_one_side_and_does_not_compare_them(tmp_path: Path) -> None:
    left, right = tiers(tmp_path, [log_of([b"x", *VALUES[1:]])], [log_of(VALUES)])
    right.shed(15)
    report = report_of(left, right)
    assert (report.outcome, report.counts["offsets_gone"], report.counts["left_rows"]) == (JobOutcome.DONE, 15, 25)


def test_in_their_order_rows_may_have_any_offsets(tmp_path: Path) -> None:
    gaps = log_of(VALUES[:20])
    gaps.leave_gap(9)
    for one in VALUES[20:]:
        gaps.append(one)
    buckets = tiers(tmp_path, [log_of(VALUES)], [gaps])
    assert report_of(*buckets, "value", compare=diff_in_order).outcome is JobOutcome.DONE
    assert report_of(*buckets, "value").counts["missing"] == 9


def test_ordered_diff_names_the_offsets_of_differences_on_both_sides(tmp_path: Path) -> None:
    lost = [*VALUES[:11], *VALUES[12:30], b"x", *VALUES[31:]]
    buckets = tiers(tmp_path, [log_of(VALUES)], [log_of(lost)])
    report = report_of(*buckets, "value", compare=diff_in_order)
    nothing = {"right_first": None, "right_last": None}
    assert report.findings == [
        {"kind": "missing", "partition": 0, "rows": 1, "left_first": 11, "left_last": 11, **nothing},
        {"kind": "different", "partition": 0, "rows": 1}
        | {"left_first": 30, "left_last": 30, "right_first": 29, "right_last": 29},
    ]
    assert (report.counts["missing"], report.counts["different"]) == (1, 1)


def test_only_so_many_findings_are_kept(tmp_path: Path) -> None:
    values = [b"%d" % (number * (number % 2)) for number in range(2 * FINDINGS_MAX + 20)]
    others = [one if number % 2 else b"x" for number, one in enumerate(values)]
    buckets = tiers(tmp_path, [log_of(values, batch_rows=500)], [log_of(others, batch_rows=500)])
    report = report_of(*buckets, "value", compare=diff_in_order)
    assert (len(report.findings), report.findings_left_out) == (FINDINGS_MAX, 10)
    assert report.counts["different"] == FINDINGS_MAX + 10


@pytest.mark.parametrize("compare", [diff, diff_in_order])
def test_partition_on_one_side_only_is_a_finding(tmp_path: Path, compare: Any) -> None:
    left, right = tiers(tmp_path, [log_of(VALUES)], [log_of(VALUES), log_of(VALUES)])
    for buckets, side in (((left, right), "left"), ((right, left), "right")):
        found = report_of(*buckets, compare=compare).findings
        assert found == [{"kind": "no such partition", "side": side, "partition": 1}]


@pytest.mark.parametrize("compare", [diff, diff_in_order])
def test_a_dry_run_reads_no_rows(tmp_path: Path, compare: Any) -> None:
    report = report_of(*tiers(tmp_path, [log_of(VALUES)], [log_of([])]), compare=compare, is_dry_run=True)
    assert (report.outcome, report.counts["offsets"], "left_rows" in report.counts) == (JobOutcome.DONE, 40, False)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(words)


def test_topics_of_two_clusters_are_named_with_their_servers() -> None:
    arguments = parsed("a", "two:1,three:2/b", "-b", "one:9", "--option", "minPartitions=3", "--right-option", "x=y")
    left = command.options_of(arguments, "left")
    assert (left.selection.topics, str(left.bootstrap[0]), left.min_partitions) == (("a",), "one:9", 3)
    arguments.right_option = []
    right = command.options_of(arguments, "right")
    assert (right.selection.topics, [str(one) for one in right.bootstrap]) == (("b",), ["two:1", "three:2"])


@pytest.mark.parametrize("name", ["/b", "a:1/", ""])
def test_malformed_topic_argument_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="is neither TOPIC nor HOST:PORT/TOPIC"):
        command.options_of(parsed(name, "b"), "left")


def test_column_that_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed("a", "b", "--columns", "value, key").columns == ("value", "key")
    with pytest.raises(SystemExit):
        parsed("a", "b", "--columns", "offset")
    assert "offset is none of timestamp, timestamp_type, key, value, headers" in capsys.readouterr().err
