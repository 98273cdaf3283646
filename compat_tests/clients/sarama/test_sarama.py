"""sarama: every codec, an idempotent producer, a group, offsets by time, and requests of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.clients.sarama.exercise import exercise
from compat_tests.harness.versions import EACH_AGE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

MODULES = {"newest": "go.mod", "oldest": "oldest.mod"}


@EACH_AGE
def test_sarama(broker: Broker, topic: str, age: str) -> None:
    assert exercise(broker, topic, "sarama", age, MODULES[age]) == "done\n"
