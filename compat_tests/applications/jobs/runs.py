"""Runs of `kafkawire-spark`, and topics for them.

Runs that are to be killed, or have workers, are processes. The others are calls, as it takes a process longer to start
than to do such a job.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from compat_tests.applications.spark.queries import FIRST_MS
from compat_tests.clients.confluent.clients import flush, producer
from compat_tests.harness.apache_kafka import QUICK_JVM
from spark_connectors.jobs.__main__ import main
from testkit.lakes import CATALOG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compat_tests.harness.broker import Broker
    from testkit.lakes import Lake

DONE_WITHIN_S = 120.0
JOBS = ("-m", "spark_connectors.jobs")
ONE = ("--workers", "1")
SPARK = f"--driver-java-options '{' '.join(QUICK_JVM)}' --conf spark.ui.enabled=false pyspark-shell"
STOPPED = ("-m", "compat_tests.applications.jobs.stopped")


@dataclass(frozen=True)
class Run:
    """The result of a run. `stderr`: its standard error; `report`: the JSON that it wrote, if it came so far."""

    code: int
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.report["counts"]
        return found


def table_words(lake: Lake, argument: str) -> list[str]:
    """How a job is told of the table, by `--to` or another argument."""
    names = {
        "parquet": f"parquet:{lake.place}",
        "delta": f"delta:{lake.place}",
        "iceberg": f"iceberg:{CATALOG}/db.events",
    }
    options = lake.catalog if lake.kind == "iceberg" else {}
    options_given = [word for name, value in options.items() for word in ("--table-option", f"{name}={value}")]
    return [argument, names[lake.kind], *options_given]


def begin(*words: str, module: Sequence[str] = JOBS) -> subprocess.Popen[str]:
    """Start `job arguments …` as a process. Its report goes to standard output. It handles SIGINT, also if these tests
    ignore it because a shell runs them in the background."""
    command = [sys.executable, *module, *words, "--report", "-", "--quiet"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": SPARK}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an ignored signal would be inherited
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    finally:
        signal.signal(signal.SIGINT, before)


def finished(process: subprocess.Popen[str]) -> Run:
    out, stderr = process.communicate(timeout=DONE_WITHIN_S)
    return Run(process.returncode, stderr, json.loads(out) if out else {})


def run(*words: str, module: Sequence[str] = JOBS) -> Run:
    """Run a job to its end; in this process, if it has no workers."""
    if module != JOBS or ONE not in pairwise(words):
        return finished(begin(*words, module=module))
    out, stderr = io.StringIO(), io.StringIO()
    with _handlers_kept(), redirect_stdout(out), redirect_stderr(stderr):
        try:
            code = main([*words, "--report", "-", "--quiet"])
        except SystemExit as left:  # by the parser of the arguments
            code = int(left.code or 0)
    return Run(code, stderr.getvalue(), json.loads(out.getvalue()) if out.getvalue() else {})


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore the handlers of the signals that a job handles."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run_and_kill(after_s: float, *words: str) -> Run:
    process = begin(*words)
    time.sleep(after_s)
    process.kill()
    return finished(process)


def values(count: int, seed: int = 0) -> list[bytes]:
    """Values of 200 bytes that do not compress, and begin with their number."""
    choice = random.Random(seed)
    return [b"%08d" % number + choice.randbytes(192) for number in range(count)]


def send(broker: Broker, topic: str, sent: Sequence[bytes | None], partition: int = 0) -> None:
    """Produce values in batches of a hundred at most."""
    client = producer(broker, batch_num_messages=100)
    for number, value in enumerate(sent):
        headers = [("h", b"%d" % number)] if number % 7 == 0 else None
        client.produce(topic, value, b"k%d" % (number % 10), partition, timestamp=FIRST_MS + number, headers=headers)
        if number % 1000 == 0:
            client.poll(0)
    flush(client)
