"""Apache Kafka's own tools on the broker under test; a call is a JVM of about two seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.tools import java_tool

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

TOOLS = "org.apache.kafka.tools"


def tool(broker: Broker, name: str, *arguments: str, check: bool = True) -> str:
    """Run a tool. The address of the broker comes last: some tools want their subcommand first."""
    return java_tool(f"{TOOLS}.{name}", *arguments, "--bootstrap-server", broker.bootstrap, check=check)


def topics(broker: Broker, *arguments: str, check: bool = True) -> str:
    return tool(broker, "TopicCommand", *arguments, check=check)
