"""Drivers of Spark that run `copier.py`, one after the other, and the processes of a driver that may be killed.

The start of Spark takes longer than all else, so the next one is started meanwhile and waits to be told.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Self

from compat_tests.harness.processes import children_of, command_of, descendants_of, kill
from compat_tests.harness.requirements import ROOT, need_pyspark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from compat_tests.applications.spark.copier import Task

# Parts of command lines. Most kinds of Python processes are forked by a daemon and have its command line.
EXECUTOR, DAEMON = "CoarseGrainedExecutorBackend", "-m pyspark.daemon"
ROLES = ("pyspark.worker", "python_streaming_source_runner", "python_streaming_sink_runner")
ENDS_WITHIN_S = 20.0
TAIL_CHARACTERS = 4000


class Driver:
    """The current driver, and the next one that waits. The output of all is in `log`. The end of `with` kills both."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "spark"  # a cluster's workers make their directories in it
        self.home.mkdir()
        for one in need_pyspark().iterdir():
            (self.home / one.name).symlink_to(one)
        self.log = directory / "driver.log"
        self.log.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._process, self._waiting = self._waiting, None
        self.kill()

    def prepare(self, task: Task) -> None:
        """Start the process of the next driver, which waits to be told."""
        assert self._waiting is None, "one is waiting already"
        environment = {
            **os.environ, "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.home.with_name("local")),
        }  # fmt: skip
        with self.log.open("ab") as log:
            self._waiting = subprocess.Popen(
                task.command(), cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )

    def start(self) -> None:
        """Let the prepared driver begin."""
        assert self._waiting is not None, "no driver was prepared"
        self._process, self._waiting = self._waiting, None
        assert self._process.stdin is not None
        with self._process.stdin as told:
            told.write(b"\n")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "no driver was started"
        return self._process.pid

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def log_tail(self) -> str:
        return self.log_text()[-TAIL_CHARACTERS:]

    def executors(self) -> list[int]:
        return [one for one in descendants_of(self.pid) if EXECUTOR in command_of(one)]

    def workers(self) -> list[list[int]]:
        """Python processes that run tasks, that plan, and that commit, in groups, as far as there are some."""
        others = [one for one in descendants_of(self.pid) if DAEMON not in command_of(one)]
        found = [[one for one in (*self.forked(), *others) if role in command_of(one)] for role in ROLES]
        return [each for each in found if each]

    def forked(self) -> list[int]:
        """The processes that Python's daemons have forked."""
        daemons = [one for one in descendants_of(self.pid) if DAEMON in command_of(one)]
        return [child for one in daemons for child in children_of(one)]

    def kill(self) -> None:
        """Kill the driver with all its descendants; do nothing if it has left."""
        if self.is_running:
            self._kill(descendants_of(self.pid))

    def kill_alone(self) -> list[int]:
        """Kill the driver, but not the processes that its daemons have forked: a process that commits goes on, and the
        others leave. Returns the processes that are left."""
        below, left = descendants_of(self.pid), set(self.forked())
        self._kill(one for one in below if one not in left)
        return sorted(left)

    def wait(self, timeout_s: float) -> int:
        """Wait until the driver leaves by itself. Returns its exit code."""
        assert self._process is not None, "no driver was started"
        return self._process.wait(timeout_s)

    def _kill(self, below: Iterable[int]) -> None:
        """Kill the driver first, then its descendants, as a parent would start or end others."""
        for one in (self.pid, *below):
            kill(one)
        self.wait(ENDS_WITHIN_S)
