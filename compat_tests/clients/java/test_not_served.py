"""Apache Kafka's tools for requests that the broker does not serve: they fail at once, with a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import create_topic
from compat_tests.harness.target import TARGET
from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

pytestmark = pytest.mark.skipif(TARGET == "kafka", reason="Apache Kafka serves all of it")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("AclCommand", ["--list"]),
        ("MetadataQuorumCommand", ["describe", "--status"]),
    ],
)
def test_administration(broker: Broker, tool: str, arguments: list[str]) -> None:
    told = java_tool(f"org.apache.kafka.tools.{tool}", "--bootstrap-server", broker.bootstrap, *arguments, check=False)
    assert "does not support" in told


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ConsoleConsumer", ["--command-property", "group.protocol=consumer"]),
        ("ConsoleShareConsumer", []),
    ],
)
def test_groups_of_other_kinds(broker: Broker, topic: str, tool: str, arguments: list[str]) -> None:
    create_topic(broker, topic)
    target = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--timeout-ms", "30000"]
    told = java_tool(f"org.apache.kafka.tools.consumer.{tool}", *target, *arguments, check=False)
    assert "UnsupportedVersionException" in told
