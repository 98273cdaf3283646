"""Transactional producers of every client, each in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.host import Host
from compat_tests.harness.requirements import need_command, need_kafka_jars
from compat_tests.harness.sources import go_program, kafkajs_program

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

ANSWERED_WITHIN_S = 60.0
PYTHON = ("confluent", "kafka_python", "aiokafka")
ALL = (*PYTHON, "java", "franz-go", "kafkajs")


def _command(name: str) -> list[str]:
    if name in PYTHON:
        return [sys.executable, "-m", f"compat_tests.features.transactions.{name}_producer"]
    if name == "java":
        need_kafka_jars()
        need_command("javac", "install a JDK, 17 or newer")
        source = Path(__file__).with_name("TransactionHost.java")
        return ["java", "-Xmx128m", *QUICK_JVM, "-cp", CLASSPATH, str(source)]
    if name == "franz-go":
        return [go_program("transactions")]
    assert name == "kafkajs", name
    return kafkajs_program("transactions.js", "newest")


class TransactionalProducer:
    """The producer of a client. `try_task` returns the error that the library raises; `ask` fails the test with it."""

    def __init__(self, broker: Broker, name: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._host = Host([*_command(name), broker.bootstrap, transactional_id, str(timeout_ms)])
        self._task_count = 0
        self._is_open = True

    def try_task(self, task: str, **fields: object) -> str:
        """Give a task to the producer. Returns the error that the library raised, or an empty text."""
        self._host.send({"do": task, **fields})
        self._task_count += 1
        self._host.wait(
            lambda: len(self._host.events("")) == self._task_count,
            lambda: f"{task} is not answered\n{self._host.events('')}\n{self._host.complaints()}",
            ANSWERED_WITHIN_S,
        )
        return str(self._host.events("")[-1]["error"])

    def ask(self, task: str, **fields: object) -> None:
        error = self.try_task(task, **fields)
        assert not error, f"{task}: {error}\n{self._host.complaints()}"

    def transact(self, topic: str, *values: str, end: str = "commit") -> None:
        """Write a record to partition 0 in a transaction, and end it."""
        self.ask("begin")
        for value in values:
            self.ask("send", topic=topic, partition=0, value=value)
        self.ask(end)

    def close(self) -> None:
        self._is_open = False
        self.try_task("close")
        self._host.leave()

    def crash(self) -> None:
        """End the producer without a message to the broker."""
        if self._is_open:
            self._is_open = False
            self._host.kill()
