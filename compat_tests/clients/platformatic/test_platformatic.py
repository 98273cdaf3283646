"""@platformatic/kafka: each codec, an idempotent producer, transactions, a group, and requests of an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.sources import platformatic_program
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker


def test_platformatic(broker: Broker, topic: str) -> None:
    assert run([*platformatic_program("exercise.js"), broker.bootstrap, topic], timeout_s=90) == "done\n"
