"""aiokafka: an idempotent producer with every codec, a group, and offsets by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic
from compat_tests.harness.exercises import exercised
from compat_tests.harness.versions import EACH_AGE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@EACH_AGE
def test_aiokafka(broker: Broker, topic: str, age: str) -> None:
    create_topic(broker, topic, partitions=3)
    assert exercised(__file__, age, broker, topic) == "done\n"
