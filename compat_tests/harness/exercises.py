"""The exercises of clients written for Python: programs, as the oldest of them have an environment of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness.tools import run
from compat_tests.harness.versions import python_with_clients

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

TIMEOUT_S = 90


def exercised(test: str, age: str, broker: Broker, topic: str) -> str:
    """What the exercise beside a test says in the end; AssertionError with what was not as it should be."""
    program = str(Path(test).with_name("exercise.py"))
    return run([python_with_clients(age), program, broker.bootstrap, topic], timeout_s=TIMEOUT_S)
