"""Comparison of a topic in a tier with a table in a directory, from arguments to the report."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

import pytest

from spark_connectors.jobs.cli import audit, verify
from spark_connectors.jobs.cli.common import Refused
from spark_connectors.jobs.comparison.tests.exports import JOB, directory_table, export, without
from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.report import JobOutcome, ProgressLine, Report
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, JsonForm, RawForm
from spark_connectors.jobs.tests.tiers import TOPIC, log_of, options_of, tier_of
from spark_connectors.jobs.topic_log import TopicLog
from spark_connectors.jobs.workers import OneByOne
from spark_connectors.options import OptionRefused

VALUES = [b'{"id": %d}' % number for number in range(20)]
SCHEMA = '[{"name": "id", "type": "int64"}]'


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A tier, a table `raw` with one missing row, and a table `json` with dead letters beside it."""
    bucket = tier_of(tmp_path / "tier", [log_of([*VALUES, b"dead"])])
    with TopicLog(options_of(bucket)) as log:
        export(log, directory_table(tmp_path / "raw"), RawForm(), without(7))
        form = JsonForm(declared(SCHEMA, taken=ORIGIN_COLUMNS))
        export(log, directory_table(tmp_path / "json"), form, letters=directory_table(tmp_path / "json~dlq"))
    (tmp_path / "schema.json").write_text(SCHEMA)
    return tmp_path


def run(command: ModuleType, lake: Path, *words: str, is_dry_run: bool = False) -> Report:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    topic = ["--topic", TOPIC, "--option", f"segments=file://{lake}/tier"]
    session = Session(OneByOne(), ProgressLine(lambda _: None, lambda: 0.0), is_dry_run)
    report: Report = command.run(parser.parse_args([*topic, *words]), session)
    return report


def test_a_table_of_raw_rows(lake: Path) -> None:
    report = run(verify, lake, "--table", f"parquet:{lake}/raw", "--job", JOB)
    assert (report.outcome, report.counts["missing"]) == (JobOutcome.DIFFERS, 1)
    assert report.asked["table"] == f"parquet:file://{lake}/raw"
    assert run(verify, lake, "--table", f"parquet:{lake}/raw", "--job", JOB, is_dry_run=True).outcome is JobOutcome.DONE
    starting = ("--starting", f'{{"{TOPIC}": {{"0": 8}}}}')
    assert run(verify, lake, "--table", f"parquet:{lake}/raw", "--job", JOB, *starting).outcome is JobOutcome.DONE


def test_verify_reads_dead_letters_beside_the_json_table_unless_another_table_is_given(lake: Path) -> None:
    words = ("--table", f"parquet:{lake}/json", "--job", JOB, "--form", "json", "--schema", f"{lake}/schema.json")
    report = run(verify, lake, *words)
    assert (report.outcome, report.counts["dead_letters"]) == (JobOutcome.DONE, 1)
    assert run(verify, lake, *words, "--dead-letters", f"parquet:{lake}/elsewhere").counts["missing"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--form", "json"),
        ("--form", "json", "--schema", "nowhere.json"),
        ("--schema", "schema.json"),
        ("--tombstones", "skip"),
        ("--job", "a/b"),
        ("--dead-letters", "parquet:there"),
    ],
)
def test_verify_refuses_missing_unused_and_invalid_arguments(lake: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(Refused):
        run(verify, lake, "--table", f"parquet:{lake}/raw", *words)


def test_an_audit_needs_brokers_or_a_store(lake: Path) -> None:
    assert run(audit, lake, "--records").counts["records"] == 21
    parser = argparse.ArgumentParser()
    audit.add_arguments(parser)
    session = Session(OneByOne(), ProgressLine(lambda _: None, lambda: 0.0), is_dry_run=False)
    with pytest.raises(OptionRefused, match=r"kafka.bootstrap.servers is required"):
        audit.run(parser.parse_args(["--topic", TOPIC]), session)
