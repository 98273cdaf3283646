"""Flink: a job copies a topic exactly once, over a failure and a stop with a savepoint."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.framework_records import TIMEOUT_S, read_values, write
from compat_tests.clients.confluent.clients import create_topic
from compat_tests.harness.java_programs import java_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker

COUNT = 400
LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
# Flink reads private fields of the JDK's classes.
OPENED = tuple(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in ("java.util", "java.lang", "java.time"))


class Job:
    """The running job."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path

    def output(self) -> str:
        return self._log_path.read_text()

    def wait_until_failed(self) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while "failed\n" not in self.output():
            assert self._process.poll() is None, self.output()[-5000:]
            assert time.monotonic() < deadline_s, self.output()[-5000:]
            time.sleep(0.1)

    def stop(self) -> str:
        """Stop the job with a savepoint. Returns the savepoint's address."""
        self._process.communicate(b"\n", timeout=TIMEOUT_S)
        assert self._process.returncode == 0, self.output()[-5000:]
        return next(line.split()[1] for line in self.output().splitlines() if line.startswith("savepoint "))


@contextmanager
def job(command: list[str], log_path: Path) -> Iterator[Job]:
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield Job(process, log_path)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_each_record_is_copied_once_over_a_failure_and_a_savepoint(
    broker: Broker, topic: str, tmp_path: Path, naming: str
) -> None:
    """The sink, with POOLING, asks the broker for the transactions that an earlier run left open."""
    copies = f"{topic}-copies"
    for name in (topic, copies):
        create_topic(broker, name, 3)
    program = java_program(Path(__file__).with_name("Copy.java"), "flink", tmp_path, LOG, *OPENED)
    command = [*program, broker.bootstrap, topic, copies, str(tmp_path), naming]
    values = write(broker, topic, (f"early {number}" for number in range(COUNT)))
    with job(command, tmp_path / "first.log") as first:
        read_values(broker, copies, COUNT)
        for part in range(20):  # records come while the job fails and starts again
            values += write(broker, topic, (f"part {part} {number}" for number in range(20)))
        first.wait_until_failed()
        savepoint = first.stop()
    values += write(broker, topic, (f"late {number}" for number in range(COUNT)))
    with job([*command, savepoint], tmp_path / "second.log") as second:
        assert read_values(broker, copies, len(values)) == sorted(values)
        second.stop()
    assert read_values(broker, copies, len(values)) == sorted(values)
