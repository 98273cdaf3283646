"""sarama 1.45.0, the last version that leaves the greatest timestamp of a batch at -1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.clients.sarama.exercise import exercise

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def test_sarama_without_max_timestamp(broker: Broker, topic: str) -> None:
    assert exercise(broker, topic, "sarama-1.45", "newest", "without-max-timestamp.mod") == "done\n"
