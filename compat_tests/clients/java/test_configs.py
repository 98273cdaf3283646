"""Apache Kafka's kafka-configs, and kafka-topics where it shows configs; a call takes about two seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compat_tests.clients.java.commands import TOOLS, tool, topics
from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

LINE = re.compile(r"^  (\S+)=(.*) sensitive=(true|false) synonyms=\{(.*)\}$")
TOPIC_KEYS_OF_KAFKA = 37


def configs(broker: Broker, *arguments: str, check: bool = True) -> str:
    return tool(broker, "ConfigCommand", *arguments, check=check)


def described(broker: Broker, *arguments: str) -> dict[str, tuple[str, str]]:
    """The value and synonyms of each key."""
    lines = configs(broker, "--describe", *arguments).splitlines()
    found = [LINE.match(line) for line in lines]
    return {one.group(1): (one.group(2), one.group(4)) for one in found if one}


def test_all_configs_of_a_topic(broker: Broker, topic: str) -> None:
    topics(broker, "--create", "--topic", topic, "--config", "max.message.bytes=2000000")
    of = ("--entity-type", "topics", "--entity-name", topic)
    found = described(broker, *of, "--all")
    assert len(found) >= TOPIC_KEYS_OF_KAFKA
    assert found["segment.ms"] == ("604800000", "")
    assert found["max.message.bytes"] == (
        "2000000",
        "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000, DEFAULT_CONFIG:message.max.bytes=1048588",
    )
    assert described(broker, *of).keys() == {"max.message.bytes"}


def test_configs_of_a_topic_are_altered_and_deleted(broker: Broker, topic: str) -> None:
    topics(broker, "--create", "--topic", topic)
    of = ("--entity-type", "topics", "--entity-name", topic)
    told = configs(broker, "--alter", *of, "--add-config", "segment.ms=100000,max.message.bytes=2000000")
    assert f"Completed updating config for topic {topic}." in told
    assert {key: value for key, (value, _) in described(broker, *of).items()} == {
        "segment.ms": "100000",
        "max.message.bytes": "2000000",
    }
    configs(broker, "--alter", *of, "--delete-config", "segment.ms")
    assert described(broker, *of).keys() == {"max.message.bytes"}
    assert "max.message.bytes=2000000" in topics(broker, "--describe", "--topic", topic)
    assert "segment.ms" in configs(broker, "--alter", *of, "--add-config", "segment.ms=soon", check=False)


def test_configs_of_a_broker_and_of_all(broker: Broker) -> None:
    own, of_all = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    everything = described(broker, *own, "--all")
    assert everything["num.partitions"] == ("1", "DEFAULT_CONFIG:num.partitions=1")
    assert everything["log.roll.ms"] == ("null", "")
    try:
        configs(broker, "--alter", *of_all, "--add-config", "max.connections.per.ip=1000")
        configs(broker, "--alter", *own, "--add-config", "max.connections.per.ip=2000")
        value, synonyms = described(broker, *own)["max.connections.per.ip"]
        assert value == "2000"
        assert synonyms.startswith(
            "DYNAMIC_BROKER_CONFIG:max.connections.per.ip=2000, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections.per.ip=1000, "
        )
        assert described(broker, *of_all)["max.connections.per.ip"][0] == "1000"
    finally:
        for entity in (own, of_all):
            configs(broker, "--alter", *entity, "--delete-config", "max.connections.per.ip")
    assert "max.connections.per.ip" not in described(broker, *of_all)
    refused = configs(broker, "--alter", *own, "--add-config", "log.dirs=/elsewhere", check=False)
    assert "Cannot update these configs dynamically" in refused


def test_levels_of_loggers(broker: Broker) -> None:
    of = ("--entity-type", "broker-loggers", "--entity-name", "1")
    before = {key: value for key, (value, _) in described(broker, *of).items()}
    assert before["root"] == "INFO"
    name = min(before.keys() - {"root"})
    configs(broker, "--alter", *of, "--add-config", f"{name}=DEBUG")
    assert described(broker, *of)[name] == ("DEBUG", "")
    configs(broker, "--alter", *of, "--delete-config", name)
    assert described(broker, *of)[name] == (before[name], "")
    refused = configs(broker, "--alter", *of, "--delete-config", "root", check=False)
    assert "Removing the log level of the root logger is not allowed" in refused
    refused = configs(broker, "--alter", *of, "--add-config", "root=LOUD", check=False)
    assert "as it is not a supported log level" in refused


def test_more_partitions(broker: Broker, topic: str) -> None:
    topics(broker, "--create", "--topic", topic, "--partitions", "1")
    topics(broker, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in topics(broker, "--describe", "--topic", topic)


def test_java_reads_batches_that_the_broker_recompressed_with_lz4(broker: Broker, topic: str) -> None:
    """Java reads batches of several LZ4 blocks that the broker compressed, from a producer with another codec."""
    topics(broker, "--create", "--topic", topic)
    of = ("--entity-type", "topics", "--entity-name", topic)
    configs(broker, "--alter", *of, "--add-config", "compression.type=lz4,compression.lz4.level=12")
    assert "Invalid value" in configs(broker, "--alter", *of, "--add-config", "compression.lz4.level=18", check=False)
    target = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    settings = ("--batch-size", "500000", "--timeout", "500", "--compression-codec", "gzip")
    lines = "".join(f"{number} {'text ' * (number % 50)}\n" for number in range(3000))
    java_tool(f"{TOOLS}.ConsoleProducer", *target, *settings, stdin=lines)
    limits = ("--from-beginning", "--max-messages", "3000", "--timeout-ms", "20000")
    assert java_tool(f"{TOOLS}.consumer.ConsoleConsumer", *target, *limits) == lines
    (segment,) = (path for path in broker.data_dir.rglob("*.log") if topic in str(path))
    shown = java_tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--files", str(segment))
    assert "compresscodec: lz4" in shown
    assert "compresscodec: gzip" not in shown
    assert "isvalid: false" not in shown
