"""Arguments of `export`, and refused ones."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from spark_connectors.jobs.cli import export
from spark_connectors.jobs.cli.common import Refused, add_run
from spark_connectors.jobs.cli.export import form_of, job_of, source_of
from spark_connectors.jobs.report import ProgressLine
from spark_connectors.jobs.session import Session
from spark_connectors.jobs.table_names import NameRefused
from spark_connectors.jobs.table_rows import JsonForm, RawForm
from spark_connectors.jobs.workers import OneByOne
from spark_connectors.options import OptionRefused
from spark_connectors.source.options import AtOffsets, AtTimestamp, Edge
from spark_connectors.wire import TopicPartition


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    export.add_arguments(parser)
    add_run(parser)
    return parser.parse_args(["-b", "here:9092", "--topic", "events", "--to", "parquet:/lake", *words])


def schema(directory: Path, text: str = '[{"name": "id", "type": "int64"}]') -> tuple[str, ...]:
    path = directory / "schema.json"
    path.write_text(text)
    return "--form", "json", "--schema", str(path)


def test_job_name_defaults_to_the_topic_and_an_invalid_name_is_refused() -> None:
    assert job_of(parsed()) == "events"
    assert job_of(parsed("--job", "nightly")) == "nightly"
    with pytest.raises(Refused, match="--job: a job is named with"):
        job_of(parsed("--job", "a/b"))


def test_rows_are_raw_unless_their_columns_are_declared(tmp_path: Path) -> None:
    assert isinstance(form_of(parsed()), RawForm)
    form = form_of(parsed(*schema(tmp_path)))
    assert isinstance(form, JsonForm)
    assert form.schema.names == ["id", "_topic", "_partition", "_offset", "_timestamp"]


@pytest.mark.parametrize(
    ("text", "reason"), [("[]", "no list of columns"), ('[{"name": "_OFFSET", "type": "int64"}]', "is there already")]
)
def test_columns_that_are_none_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        form_of(parsed(*schema(tmp_path, text)))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--form", "json"), "needs a --schema"),
        (("--form", "json", "--schema", "/no/such"), "No such file"),
        (("--schema", "/no/such"), "--schema says nothing without --form json"),
        (("--tombstones", "skip"), "--tombstones says nothing without --form json"),
    ],
)
def test_form_with_missing_or_unused_arguments_is_refused(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        form_of(parsed(*words))


def test_job_starts_at_the_earliest_offset_by_default() -> None:
    assert source_of(parsed())[1] is Edge.EARLIEST
    assert source_of(parsed("--starting", "earliest"))[1] is Edge.EARLIEST
    assert source_of(parsed("--starting", "latest"))[1] is Edge.LATEST
    found = source_of(parsed("--starting", '{"events": {"0": 7}}'))[1]
    assert found == AtOffsets({TopicPartition("events", 0): 7})
    assert source_of(parsed("--option", "startingTimestamp=5"))[1] == AtTimestamp(5)


def test_a_beginning_is_told_once() -> None:
    with pytest.raises(Refused, match="--starting: an option says where to start"):
        source_of(parsed("--starting", "latest", "--option", "startingTimestamp=5"))
    with pytest.raises(OptionRefused, match="startingOffsets"):
        source_of(parsed("--starting", "tomorrow"))


def test_a_table_is_made_of_one_topic() -> None:
    with pytest.raises(Refused, match="--topic"):
        source_of(parsed("--topic", "events,orders"))


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_how_much_a_task_reads_is_not_chosen(option: str) -> None:
    with pytest.raises(Refused, match="--file-size"):
        source_of(parsed("--option", f"{option}=7"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--dead-letters", "parquet:/dead"), "raw rows need not be decoded"),
        (("--to", "orc:/lake"), "is no table"),
        (("--table-option", "region=here"), "has no options"),
    ],
)
def test_tables_that_are_none(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises((Refused, NameRefused), match=reason):
        export.run(parsed(*words), session())


def test_dead_letters_have_a_table_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot go into the table"):
        export.run(parsed(*schema(tmp_path), "--dead-letters", "parquet:/lake"), session())


def test_ages() -> None:
    assert parsed("--sweep", "7d").sweep == 7 * 86_400
    with pytest.raises(argparse.ArgumentError, match="no time"):
        parsed("--sweep", "old")


def session() -> Session:
    return Session(OneByOne(), ProgressLine(lambda _: None, lambda: 0.0), is_dry_run=True)
