"""Accepted options of a reporter, and options that are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from spark_connectors.options import OptionRefused
from spark_connectors.progress.options import ReportOptions, report_options
from spark_connectors.wire import Address


def options(raw: dict[str, str] | None = None, **changes: Any) -> ReportOptions:
    said = {"bootstrap_servers": "one:1,two", "group_id": "spark-{query}", "queries": None, "topics": None, **changes}
    return report_options(**said, raw=raw or {})


def test_report_options_have_servers_queries_topics_and_settings() -> None:
    found = options({"kafka.client.id": "me", "Kafka.Request.Timeout.Ms": "500"}, queries=["q"], topics=["t", "u"])
    assert found.bootstrap == (Address("one", 1), Address("two", 9092))
    assert (found.settings.client_id, found.settings.request_timeout_s) == ("me", 0.5)
    assert (found.queries, found.topics) == (frozenset("q"), frozenset("tu"))


def test_patience_is_ten_seconds_unless_an_option_sets_it() -> None:
    assert options().settings.patience_s == 10.0
    assert options({"kafka.DEFAULT.api.timeout.ms": "2000"}).settings.patience_s == 2.0


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism"),
        ({"kafka.group.id": "g"}, "kafka.group.id"),
        ({"kafka.bootstrap.servers": "three:1"}, "bootstrap_servers"),
        ({"subscribe": "t"}, "subscribe"),
    ],
)
def test_options_that_cannot_be_obeyed(raw: dict[str, str], name: str) -> None:
    with pytest.raises(OptionRefused, match=name):
        options(raw)


@pytest.mark.parametrize("changes", [{"group_id": ""}, {"queries": "q"}, {"topics": "t"}, {"bootstrap_servers": " "}])
def test_arguments_that_mean_nothing(changes: dict[str, Any]) -> None:
    with pytest.raises(OptionRefused, match=next(iter(changes)).replace("_", ".").removesuffix(".id")):
        options(**changes)
