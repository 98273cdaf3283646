"""confluent-kafka: its administrator, an idempotent producer with every codec, a group, and offsets by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.exercises import exercised
from compat_tests.harness.versions import OLDEST_AGE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@OLDEST_AGE
def test_confluent_kafka(broker: Broker, topic: str, age: str) -> None:
    assert exercised(__file__, age, broker, topic) == "done\n"
