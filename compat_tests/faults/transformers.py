"""Transformers in processes of their own: told to leave, killed, and started again when they leave by themselves."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from compat_tests.faults.confluent_transformer import RESTART
from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.host import Host
from compat_tests.harness.requirements import need_command, need_kafka_jars
from compat_tests.harness.tools import run

COMPILED_WITHIN_S = 60


def confluent() -> list[str]:
    """The command of the transformer with librdkafka."""
    return [sys.executable, "-m", "compat_tests.faults.confluent_transformer"]


def java(directory: Path) -> list[str]:
    """The command of the transformer with Java's client, compiled into `directory`."""
    need_kafka_jars()
    javac = need_command("javac", "install a JDK, 17 or newer")
    source = Path(__file__).with_name("Transformer.java")
    run([javac, "-cp", CLASSPATH, "-d", str(directory), str(source)], timeout_s=COMPILED_WITHIN_S)
    return ["java", "-Xmx128m", *QUICK_JVM, "-cp", f"{directory}:{CLASSPATH}", "Transformer"]


class TransformerProcess:
    """Transformer processes, one after the other, with the same transactional id."""

    def __init__(self, command: list[str], *arguments: str) -> None:
        self._command = [*command, *arguments]
        self._ended = Counter[str]()  # of the processes that have ended
        self.restarts = 0  # of processes that left by themselves
        self._host = Host(self._command)

    def count(self, event: str) -> int:
        """The number of transactions that were `committed` or `aborted`."""
        return self._ended[event] + len([one for one in self._host.events("") if one["event"] == event])

    def kill(self) -> None:
        """Kill the process at any point, and start the next one."""
        self._host.kill()
        self._begin_again()

    def revive(self) -> None:
        """Start the next process if this one was fenced or failed for good. Raises AssertionError for any other exit
        code."""
        code = self._host.exit_code
        if code is not None:
            assert code == RESTART, f"{self._command} left with {code}:\n{self._host.complaints()}"
            self._host.kill()
            self.restarts += 1
            self._begin_again()

    def _begin_again(self) -> None:
        self._ended.update(str(one["event"]) for one in self._host.events(""))
        self._host = Host(self._command)

    def end(self) -> None:
        """Kill the process, and start no other."""
        self._host.kill()

    def leave(self) -> None:
        self._host.leave()
