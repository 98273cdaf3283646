"""Spring Boot: orders that fail are tried again from retry topics, and end in a dead-letter topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.applications.framework_records import TIMEOUT_S, read_values
from compat_tests.clients.confluent.clients import Admin, create_topic
from compat_tests.harness.java_programs import java_program
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

COUNT, ATTEMPTS = 50, 3
GOOD = [number for number in range(COUNT) if number % 10 not in (3, 7)]
LATE = range(7, COUNT, 10)  # handled at the last attempt
BAD = range(3, COUNT, 10)


def test_failed_orders_are_retried_and_then_dead(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic, 3)
    command = java_program(Path(__file__).with_name("Orders.java"), "spring", tmp_path, package="orders.")
    output = run([*command, broker.bootstrap, topic, str(COUNT)], timeout_s=2 * TIMEOUT_S)
    expected = [
        *(f"handled good {number} at attempt 1" for number in GOOD),
        *(f"handled late {number} at attempt {ATTEMPTS}" for number in LATE),
        *(f"dead bad {number} after attempt {ATTEMPTS}" for number in BAD),
    ]
    assert sorted(output.splitlines()) == sorted(expected)
    dead = sorted(f"bad {number}" for number in BAD)
    assert read_values(broker, f"{topic}-dlt", len(dead)) == dead
    retried = sorted([*dead, *(f"late {number}" for number in LATE)])
    retries = sorted(name for name in Admin(broker).topics() if name.startswith(f"{topic}-retry"))
    assert len(retries) == ATTEMPTS - 1
    for each in retries:
        assert read_values(broker, each, len(retried)) == retried
