"""Common arguments of jobs."""

from __future__ import annotations

import argparse

import pytest

from spark_connectors.jobs.cli.common import Refused, add_run, add_topic, shown_arguments, size_bytes, topic_options
from spark_connectors.options import OptionRefused


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_topic(parser)
    add_run(parser)
    return parser.parse_args(["--topic", "events", *words])


def test_all_columns_of_a_topic_are_read() -> None:
    options = topic_options(parsed("-b", "here:9092"))
    assert options.selection.topics == ("events",)
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def test_options_are_those_of_the_source() -> None:
    options = topic_options(parsed("-b", "here:9092", "--option", "kafka.isolation.level=read_committed"))
    assert options.is_committed_only


@pytest.mark.parametrize("name", ["subscribe", "kafka.bootstrap.servers", "columns", "includeHeaders"])
def test_source_option_that_an_argument_replaces_is_refused(name: str) -> None:
    with pytest.raises(Refused, match=name):
        topic_options(parsed("-b", "here:9092", "--option", f"{name}=x"))


def test_option_that_the_source_refuses_is_refused() -> None:
    with pytest.raises(OptionRefused, match=r"kafka\.sasl"):
        topic_options(parsed("-b", "here:9092", "--option", "kafka.sasl.mechanism=PLAIN"))


def test_topics_are_one_a_run() -> None:
    with pytest.raises(Refused, match="one a run"):
        topic_options(parsed("-b", "here:9092", "--topic", "one,another"))


def test_reports_tell_no_values_of_options() -> None:
    asked = shown_arguments(parsed("--option", "segments.store=s3://me:secret@lake"), table="delta:/lake")
    assert asked == {"topic": "events", "bootstrap_server": None, "options": ["segments.store"], "table": "delta:/lake"}


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("7B", 7), ("2KiB", 2048), ("128MiB", 128 << 20), ("1GiB", 1 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5MiB", "1MB", "MiB"])
def test_malformed_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        size_bytes(text)


@pytest.mark.parametrize("words", [("--workers", "0"), ("--workers", "2", "--spark"), ("--option", "segments")])
def test_invalid_run_arguments_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parsed(*words)
