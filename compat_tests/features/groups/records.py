"""Records for the members to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import flush, producer

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def fill(broker: Broker, topic: str, partitions: int, numbers: range) -> None:
    """Write to each partition one record for each number, `<partition>/<number>`."""
    client = producer(broker)
    for partition in range(partitions):
        for number in numbers:
            client.produce(topic, f"{partition}/{number}", partition=partition)
    flush(client)
