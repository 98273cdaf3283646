"""Input and output of the programs for frameworks."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import flush, new_consumer, producer, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

    from compat_tests.harness.broker import Broker

TIMEOUT_S = 90.0
SURPLUS_S = 1.0  # a record that came twice would be there by then


def write(broker: Broker, topic: str, values: Iterable[str]) -> list[str]:
    """Write records with their values as keys. Returns the values."""
    written = [*values]
    client = producer(broker, enable_idempotence=True)
    for value in written:
        client.produce(topic, value, key=value)
    flush(client)
    return written


def read_values(broker: Broker, topic: str, count: int) -> list[str]:
    """The sorted values of a topic: so many committed ones, and those that come within a second behind them. Raises
    AssertionError if they do not come."""
    found: list[str] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    group = f"reader of {topic} {time.monotonic_ns()}"
    settings = {"group_id": group, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with closing(new_consumer(broker, **settings)) as consumer:
        subscribe(consumer, topic)
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records are in {topic}"
            found += _values_of(consumer.consume(500, 0.2))
        return sorted(found + _values_of(consumer.consume(500, SURPLUS_S)))


def _values_of(messages: Iterable[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages if message.error() is None]
