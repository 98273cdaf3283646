"""Runs the command-line clients with a time-out; a tool that fails shows all it said."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.requirements import need_kafka_jars, need_kcat

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 60


def run(
    command: list[str],
    *,
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
    check: bool = True,
    directory: Path | None = None,
) -> str:
    """Standard output of a command; AssertionError with everything it said when it fails and `check` is set."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=directory
    )
    assert not check or done.returncode == 0, f"{command} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout if check else done.stdout + done.stderr


def java_tool(class_name: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    """Standard output of one of Kafka's own tools; without `check` also what it said on standard error."""
    need_kafka_jars()
    command = ["java", "-Xmx256m", *QUICK_JVM, "-cp", CLASSPATH, class_name, *arguments]
    return run(command, stdin=stdin, check=check)


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    return run([need_kcat(), "-b", bootstrap, *arguments], stdin=stdin)
