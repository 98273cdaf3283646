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
    """Run the exercise beside a test and return its output. Raises AssertionError if it fails."""
    program = str(Path(test).with_name("exercise.py"))
    return run([python_with_clients(age), program, broker.bootstrap, topic], timeout_s=TIMEOUT_S)
