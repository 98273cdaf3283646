"""Runs the command-line clients with a time-out; a tool that fails shows all it said."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import CLASSPATH, QUICK_JVM
from compat_tests.harness.requirements import ROOT, need_connect_jars, need_kafka_jars, need_kcat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

TIMEOUT_S = 60
LEAVE_TIMEOUT_S = 30


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


def project_files(*folders: str) -> list[str]:
    """The files in these folders, or in all, that git tracks or would add, and that exist."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    return [name for name in run(listing, directory=ROOT).splitlines() if (ROOT / name).is_file()]


def java_tool(class_name: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    """Run one of Kafka's own tools and return its standard output, without `check` also its standard error."""
    need_kafka_jars()
    command = ["java", "-Xmx256m", *QUICK_JVM, "-cp", CLASSPATH, class_name, *arguments]
    return run(command, stdin=stdin, check=check)


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    return run([need_kcat(), "-b", bootstrap, *arguments], stdin=stdin)


@contextmanager
def running(log: Path, command: list[str], **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the end of the block; its output is appended to `log`, and printed if a test fails."""
    with log.open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **environment})
        try:
            yield process
        except Exception:
            print(log.read_text()[-5000:])
            raise
        finally:
            process.terminate()
            try:
                process.wait(LEAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def running_connect(log: Path, class_name: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run Kafka Connect or MirrorMaker until the end of the block."""
    classpath = f"{need_connect_jars()}/*"
    return running(log, ["java", "-Xmx512m", *QUICK_JVM, "-cp", classpath, class_name, *arguments])
