"""kafka-python: its administrator, a producer with most codecs, a group, and offsets by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.exercises import exercised
from compat_tests.harness.versions import EACH_AGE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@EACH_AGE
def test_kafka_python(broker: Broker, topic: str, age: str) -> None:
    assert exercised(__file__, age, broker, topic) == "done\n"
