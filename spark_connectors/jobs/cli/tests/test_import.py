"""Arguments of `import`."""

from __future__ import annotations

import argparse

import pytest

from spark_connectors.jobs.cli import import_
from spark_connectors.jobs.cli.common import Refused, add_run
from spark_connectors.jobs.importing.job import ImportRequest
from spark_connectors.options import OptionRefused


def asked(*words: str) -> ImportRequest:
    parser = argparse.ArgumentParser(exit_on_error=False)
    import_.add_arguments(parser)
    add_run(parser)
    return import_.import_request(parser.parse_args(["--topic", "orders", "--from-bootstrap", "there:1", *words]))


def test_the_source_is_read_as_committed_and_the_target_is_called_the_same() -> None:
    found = asked("-b", "here:2")
    assert (found.topic, found.to_topic, found.job) == ("orders", "orders", "orders-to-orders")
    assert [(one.host, one.port) for one in found.source.bootstrap] == [("there", 1)]
    assert [(one.host, one.port) for one in found.target.bootstrap] == [("here", 2)]
    assert (found.source.is_committed_only, found.target.is_committed_only) == (True, False)
    assert found.urls == ("http://here:9644",)
    assert (found.groups, found.map_path) == ((), None)


def test_import_arguments_override_the_defaults() -> None:
    words = ["--to-topic", "copy", "--to-http", "http://a:1/, http://b:2", "--groups", "g", "h", "--offset-map", "f"]
    found = asked("-b", "here:2", *words, "--job", "mine", "--option", "kafka.request.timeout.ms=5000")
    assert (found.to_topic, found.urls, found.groups) == ("copy", ("http://a:1", "http://b:2"), ("g", "h"))
    assert (found.map_path, found.job) == ("f", "mine")
    assert found.source.settings.request_timeout_s == 5


def test_an_address_of_ipv6_is_a_host() -> None:
    assert asked("-b", "[::1]:2").urls == ("http://[::1]:9644",)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["-b", "here:2", "--option", "kafka.isolation.level=read_uncommitted"],
            "an import reads committed records only",
        ),
        (["-b", "here:2", "--option", "segments=http://there:9644"], "segments: an import fetches all"),
        (["-b", "here:2", "--option", "segments.store=s3://lake"], "an import fetches"),
        (["-b", "here:2", "--option", "Segments=http://there:9644"], "an import fetches"),
        (["-b", "here:2", "--option", "startingOffsets=latest"], "startingoffsets: an import fetches all"),
        (["-b", "here:2", "--spark"], "writes from this machine"),
        ([], "-b says where to import to"),
    ],
)
def test_unsupported_import_arguments_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        asked(*words)


def test_option_that_the_source_refuses_is_refused() -> None:
    with pytest.raises(OptionRefused, match=r"kafka\.sasl"):
        asked("-b", "here:2", "--option", "kafka.sasl.mechanism=PLAIN")
