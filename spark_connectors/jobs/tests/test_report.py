"""Progress and report of a job."""

from __future__ import annotations

import json

from spark_connectors.jobs.report import FINDINGS_MAX, LINE_EVERY_S, JobOutcome, ProgressLine, Report


def test_counts_of_one_name_are_added() -> None:
    report = Report("export", {})
    report.add(rows=3, files=1)
    report.add(rows=4)
    assert report.counts == {"rows": 7, "files": 1}


def test_report_with_a_finding_has_the_outcome_differs() -> None:
    report = Report("verify", {})
    report.found(partition=0, offset=7)
    assert (report.outcome, report.findings) == (JobOutcome.DIFFERS, [{"partition": 0, "offset": 7}])


def test_findings_have_an_end_and_are_counted_beyond() -> None:
    report = Report("audit", {})
    for offset in range(FINDINGS_MAX + 5):
        report.found(offset=offset)
    assert (len(report.findings), report.findings_left_out) == (FINDINGS_MAX, 5)


def test_programs_read_json() -> None:
    report = Report("export", {"topic": "events"}, counts={"rows": 5})
    assert json.loads(report.to_json(1.23456)) == {
        "job": "export",
        "outcome": "done",
        "asked": {"topic": "events"},
        "seconds": 1.235,
        "counts": {"rows": 5},
        "findings": [],
        "findings_left_out": 0,
    }


def test_report_has_the_reason_of_a_stopped_job() -> None:
    report = Report("export", {}, JobOutcome.STOPPED, reason="no broker answers")
    assert json.loads(report.to_json(0))["reason"] == "no broker answers"


class ProgressWorld:
    """Shown lines, and a clock that a test moves."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_s = 10.0
        self.progress = ProgressLine(self.lines.append, lambda: self.now_s)


def test_a_line_now_and_then() -> None:
    world = ProgressWorld()
    for done in range(5):
        world.progress.update("events", done, 4)
        world.now_s += LINE_EVERY_S / 2
    assert [line.split(" (")[0] for line in world.lines] == ["events: 0.0 %", "events: 50.0 %", "events: 100.0 %"]


def test_the_last_line_is_never_left_out() -> None:
    world = ProgressWorld()
    world.progress.update("events", 0, 4)
    world.now_s += LINE_EVERY_S / 4
    world.progress.update("events", 4, 4, rows=1000, is_last=True)
    assert world.lines[-1] == "events: 100.0 % (4 of 4), 1000 rows, 4000 rows/s"


def test_of_nothing_all_is_done() -> None:
    world = ProgressWorld()
    world.progress.update("events", 0, 0)
    assert world.lines == ["events: 100.0 % (0 of 0), 0 rows, 0 rows/s"]
