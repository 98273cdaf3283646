"""kafka-python: its administrator, a producer with most codecs, a group, and offsets by time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness.tools import run
from compat_tests.harness.versions import EACH_AGE, python_with_clients

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

EXERCISE = str(Path(__file__).with_name("exercise.py"))


@EACH_AGE
def test_kafka_python(broker: Broker, topic: str, age: str) -> None:
    assert run([python_with_clients(age), EXERCISE, broker.bootstrap, topic], timeout_s=90) == "done\n"
