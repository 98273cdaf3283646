"""`kafkawire configs` against a cluster in memory, and `explain` without one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkawire.cli import main
from kafkawire.client.tests.fake_admin import BROKER, TOPIC, FakeAdmin
from kafkawire.client.tests.fake_cluster import FakeLog
from kafkawire.config.broker_config import BROKER_KEYS
from kafkawire.config.topic_config import TOPIC_KEYS
from kafkawire.config.unbuilt import HARMLESS_KEYS
from kafkawire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkawire.requests.errors import ErrorCode


@pytest.fixture
def fake() -> FakeAdmin:
    """`orders` keeps its records for 5 ms."""
    cluster = FakeAdmin(2)
    cluster.topics["orders"] = [FakeLog()]
    cluster.configs[TOPIC, "orders"] = {"retention.ms": "5"}
    return cluster


def run(fake: FakeAdmin, *arguments: str) -> Result:
    command = ["configs", *arguments, "--bootstrap-server", "kafka-1:9092"]
    return CliRunner().invoke(main, command, obj=fake.connect, catch_exceptions=False)


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["configs", "explain", *arguments], catch_exceptions=False)


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def refused(result: Result, code: int = 1) -> str:
    assert result.exit_code == code
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def test_get_shows_only_keys_that_are_set(fake: FakeAdmin) -> None:
    assert rows(run(fake, "get", "--topic", "orders")) == [
        ["KEY", "VALUE", "SOURCE", "READ-ONLY"],
        ["retention.ms", "5", "topic", "no"],
    ]


def test_all_or_some_keys(fake: FakeAdmin) -> None:
    assert [row[0] for row in rows(run(fake, "get", "--topic", "orders", "--all"))[1:]] == [
        "cleanup.policy",
        "retention.ms",
    ]
    (one,) = document(run(fake, "get", "cleanup.policy", "--topic", "orders", "-o", "json"))
    assert one == {
        "key": "cleanup.policy",
        "value": "delete",
        "source": "default",
        "type": "string",
        "read_only": False,
        "sensitive": False,
        "documentation": "What it is for.",
        "synonyms": [{"key": "cleanup.policy", "value": "delete", "source": "default"}],
    }


def test_each_broker_is_asked_itself(fake: FakeAdmin) -> None:
    fake.configs[BROKER, "2"] = {"num.partitions": "7"}
    assert rows(run(fake, "get", "--broker", "2"))[1] == ["num.partitions", "7", "broker", "no"]
    assert refused(run(fake, "get", "--broker", "9")) == "there is no broker 9"


def test_get_of_a_missing_topic_or_key_is_an_error(fake: FakeAdmin) -> None:
    assert refused(run(fake, "get", "--topic", "gone")) == "topic gone: there is no such topic or partition"
    assert refused(run(fake, "get", "no.such", "--topic", "orders")) == "topic orders has no no.such"


def test_set(fake: FakeAdmin) -> None:
    result = run(fake, "set", "max.message.bytes=9", "--delete", "retention.ms", "--append", "x=a", "--topic", "orders")
    assert rows(result) == [
        ["KEY", "OPERATION", "VALUE"],
        ["max.message.bytes", "set", "9"],
        ["retention.ms", "delete", "-"],
        ["x", "append", "a"],
    ]
    assert fake.configs[TOPIC, "orders"] == {"max.message.bytes": "9", "x": "a"}
    assert run(fake, "set", "max.connections=3", "--all-brokers").exit_code == 0
    assert fake.configs[BROKER, ""] == {"max.connections": "3"}


def test_a_dry_run_changes_nothing(fake: FakeAdmin) -> None:
    result = run(fake, "set", "retention.ms=1", "--topic", "orders", "--dry-run")
    assert "--dry-run" in result.stderr
    assert fake.configs[TOPIC, "orders"] == {"retention.ms": "5"}


def test_a_refusal(fake: FakeAdmin) -> None:
    fake.refuse(IncrementalAlterConfigsRequest, ErrorCode.INVALID_CONFIG)
    assert refused(run(fake, "set", "retention.ms=x", "--topic", "orders")) == "topic orders: not so"


@pytest.mark.parametrize(
    "arguments",
    [
        ["get"],
        ["get", "--topic", "t", "--broker", "1"],
        ["set", "--topic", "t"],
        ["set", "retention.ms", "--topic", "t"],
        ["set", "=5", "--topic", "t"],
        ["set", "a=1"],
    ],
)
def test_a_command_that_is_not_clear(fake: FakeAdmin, arguments: list[str]) -> None:
    refused(run(fake, *arguments), code=2)
    assert fake.requests == []


def test_explain_a_key_of_topics() -> None:
    lines = explain("segment.ms").stdout.splitlines()
    assert lines[0] == "segment.ms (topic)"
    assert lines[-5:] == [
        "type      long",
        "default   604800000",
        "synonyms  log.roll.ms, log.roll.hours",
        "change    while brokers run",
        "status    obeyed",
    ]


def test_explain_a_key_of_topics_and_brokers() -> None:
    topic, broker = document(explain("min.insync.replicas", "-o", "json"))
    assert (topic["of"], broker["of"], broker["change"]) == ("topic", "broker", "while brokers run, cluster-wide")


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("node.id", "at the start"),
        ("listeners", "at the start: read-only here, per-broker in Kafka"),
        ("max.connections", "while brokers run, cluster-wide"),
    ],
)
def test_explain_says_when_a_key_can_be_changed(key: str, change: str) -> None:
    (one,) = document(explain(key, "-o", "json"))
    assert one["change"] == change


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("remote.log.delete.on.disable", "obeyed"),
        ("authorizer.class.name", "not built yet: only the default is accepted"),
        ("num.io.threads", "without effect"),
        ("broker.id", "obeyed"),
    ],
)
def test_explain_shows_the_status_of_a_key(key: str, status: str) -> None:
    (one,) = document(explain(key, "-o", "json"))
    assert one["status"] == status


@pytest.mark.parametrize("key", sorted({*TOPIC_KEYS, *BROKER_KEYS, *HARMLESS_KEYS}))
def test_every_key_can_be_explained(key: str) -> None:
    assert explain(key).exit_code == 0


def test_explain_a_key_that_there_is_not() -> None:
    assert refused(explain("retention.m")) == (
        "retention.m is not a key of topics or brokers, did you mean retention.ms?"
    )
    assert refused(explain("zzz")) == "zzz is not a key of topics or brokers"


def test_a_password_that_is_set_is_not_shown(fake: FakeAdmin) -> None:
    given = ["set", "--broker", "1", "listener.name.outside.ssl.key.password=hunter2", "--dry-run"]
    for output in ("table", "json"):
        result = run(fake, *given, "--output", output)
        assert (result.exit_code, "(sensitive)" in result.stdout, "hunter2" in result.output) == (0, True, False)
