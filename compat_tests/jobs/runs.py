"""Runs of `kafkawire-spark` as processes, and topics for them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from compat_tests.confluent.clients import flush, producer
from compat_tests.spark.queries import FIRST_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat_tests.harness.broker import Broker

DONE_WITHIN_S = 120.0
JOBS = ("-m", "spark_connectors.jobs")
STOPPED = ("-m", "compat_tests.jobs.stopped")


@dataclass(frozen=True)
class Run:
    """`told`: what it wrote on standard error; `report`: the JSON that it wrote, if it came so far."""

    code: int
    told: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.report["counts"]
        return found


def begin(*words: str, module: Sequence[str] = JOBS) -> subprocess.Popen[str]:
    """Of `job arguments …`, its report goes to standard output."""
    command = [sys.executable, *module, *words, "--report", "-", "--quiet"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(process: subprocess.Popen[str]) -> Run:
    out, told = process.communicate(timeout=DONE_WITHIN_S)
    return Run(process.returncode, told, json.loads(out) if out else {})


def run(*words: str, module: Sequence[str] = JOBS) -> Run:
    return finished(begin(*words, module=module))


def run_and_kill(after_s: float, *words: str) -> Run:
    process = begin(*words)
    time.sleep(after_s)
    process.kill()
    return finished(process)


def values(count: int, seed: int = 0) -> list[bytes]:
    """Of 200 bytes; they do not compress, and begin with their number."""
    choice = random.Random(seed)
    return [b"%08d" % number + choice.randbytes(192) for number in range(count)]


def send(broker: Broker, topic: str, sent: Sequence[bytes | None], partition: int = 0) -> None:
    """In batches of no more than a hundred."""
    client = producer(broker, batch_num_messages=100)
    for number, value in enumerate(sent):
        headers = [("h", b"%d" % number)] if number % 7 == 0 else None
        client.produce(topic, value, b"k%d" % (number % 10), partition, timestamp=FIRST_MS + number, headers=headers)
        if number % 1000 == 0:
            client.poll(0)
    flush(client)
