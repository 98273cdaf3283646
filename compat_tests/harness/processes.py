"""Descendants of processes, as Spark has them: a driver, its JVM, executors, daemons and the daemons' children."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

NOT_RUNNING = "ZX"  # zombies: ended, but not waited for yet


def children_of(pid: int) -> list[int]:
    """The children of all threads of a process; none if the process is gone."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(one) for one in path.read_text().split()]
    return found


def descendants_of(pid: int) -> list[int]:
    """The descendants of a process, the nearest first."""
    found = [pid]
    for one in found:
        found += children_of(one)
    return found[1:]


def command_of(pid: int) -> str:
    """The command line of a process; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in NOT_RUNNING


def kill(pid: int) -> None:
    """Send SIGKILL; do nothing if the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
