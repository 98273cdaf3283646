"""kafkajs: an idempotent producer and a plain one, a group, and requests of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.sources import kafkajs_program
from compat_tests.harness.tools import run
from compat_tests.harness.versions import EACH_AGE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


@EACH_AGE
def test_kafkajs(broker: Broker, topic: str, age: str) -> None:
    assert run([*kafkajs_program("exercise.js", age), broker.bootstrap, topic], timeout_s=90) == "done\n"
