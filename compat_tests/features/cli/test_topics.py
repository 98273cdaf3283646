"""`kafkawire topics` and `kafkawire configs` as a user types them, against a running broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.features.cli.commands import document, refusal

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def test_a_topic_is_created_listed_altered_and_deleted(broker: Broker, topic: str) -> None:
    assert document(broker, "topics", "create", topic, "--dry-run")[0]["error"] is None
    document(broker, "topics", "create", topic, "--partitions", "2", "--set", "max.message.bytes=2000000")
    assert topic in refusal(broker, "topics", "create", topic)
    listed = {one["topic"]: one for one in document(broker, "topics", "list")}
    assert (listed[topic]["partitions"], listed[topic]["replicas"]) == (2, len(broker.brokers))
    (described,) = document(broker, "topics", "describe", topic)
    assert described["topic_id"] == listed[topic]["topic_id"]
    assert [(one["partition"], one["replicas"] == one["in_sync"]) for one in described["partitions"]] == [
        (0, True),
        (1, True),
    ]
    document(broker, "topics", "alter", topic, "--partitions", "3")
    assert "3" in refusal(broker, "topics", "alter", topic, "--partitions", "2")
    (described,) = document(broker, "topics", "describe", topic)
    assert len(described["partitions"]) == 3
    document(broker, "topics", "delete", topic)
    assert topic in refusal(broker, "topics", "delete", topic)
    document(broker, "topics", "delete", topic, "--if-exists")


def value(broker: Broker, topic: str, key: str) -> Any:
    (one,) = document(broker, "configs", "get", key, "--topic", topic)
    return one["value"]


def test_configs_of_a_topic(broker: Broker, topic: str) -> None:
    document(broker, "topics", "create", topic)
    of = ("--topic", topic)
    document(broker, "configs", "set", "max.message.bytes=2000000", "segment.ms=100000", *of)
    found = document(broker, "configs", "get", *of)
    assert {one["key"]: one["value"] for one in found if one["source"] == "topic"} == {
        "max.message.bytes": "2000000",
        "segment.ms": "100000",
    }
    document(broker, "configs", "set", "--delete", "segment.ms", "--append", "cleanup.policy=compact", *of)
    wait_until(lambda: value(broker, topic, "cleanup.policy") == "delete,compact", "the list has not grown")
    document(broker, "configs", "set", "--subtract", "cleanup.policy=delete", *of)
    wait_until(lambda: value(broker, topic, "cleanup.policy") == "compact", "the list has not shrunk")
    (one,) = document(broker, "configs", "get", "segment.ms", *of)
    assert (one["value"], one["source"], one["type"]) == ("604800000", "default", "long")
    assert len(document(broker, "configs", "get", "--all", *of)) >= 33
    assert "segment.ms" in refusal(broker, "configs", "set", "segment.ms=soon", *of)
    assert "no.such.key" in refusal(broker, "configs", "set", "no.such.key=1", *of)


def test_configs_of_brokers(broker: Broker) -> None:
    (node,) = document(broker, "configs", "get", "node.id", "--broker", "1")
    assert (node["value"], node["read_only"]) == ("1", True)
    document(broker, "configs", "set", "max.connections.per.ip=1000", "--all-brokers")
    try:
        found = {one["key"]: one for one in document(broker, "configs", "get", "--all-brokers")}
        assert found["max.connections.per.ip"]["value"] == "1000"
        (one,) = document(broker, "configs", "get", "max.connections.per.ip", "--broker", "1")
        assert (one["value"], one["source"]) == ("1000", "all-brokers")
    finally:
        document(broker, "configs", "set", "--delete", "max.connections.per.ip", "--all-brokers")
    assert "log.dirs" in refusal(broker, "configs", "set", "log.dirs=/elsewhere", "--broker", "1")
