"""Camel: a route that commits by hand and reads again from a record that failed, with a repository in a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.applications.framework_records import TIMEOUT_S, read_values, write
from compat_tests.clients.confluent.clients import create_topic
from compat_tests.harness.java_programs import java_program
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

COUNT, ATTEMPTS = 300, 3
LATE = range(0, COUNT, 60)


def test_each_record_is_copied_once_although_some_fail_at_first(broker: Broker, topic: str, tmp_path: Path) -> None:
    for name, partitions, config in (
        (topic, 3, {}),
        (f"{topic}-copies", 3, {}),
        (f"{topic}-copied", 1, {"cleanup.policy": "compact"}),
    ):
        create_topic(broker, name, partitions, config)
    values = write(broker, topic, (f"{'late' if number in LATE else 'value'} {number}" for number in range(COUNT)))
    command = java_program(Path(__file__).with_name("Copy.java"), "camel", tmp_path)
    names = (topic, f"{topic}-copies", f"{topic}-copied")
    output = run([*command, broker.bootstrap, *names, str(COUNT)], timeout_s=2 * TIMEOUT_S)
    assert output == f"failed {len(LATE) * (ATTEMPTS - 1)}\n"
    assert read_values(broker, f"{topic}-copies", COUNT) == sorted(values)
