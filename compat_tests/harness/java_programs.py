"""Java programs of frameworks: compiled by the tests, with the jars of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.requirements import need_command, need_jars
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from pathlib import Path

COMPILED_WITHIN_S = 90


def java_program(source: Path, jars: str, directory: Path, *options: str, package: str = "") -> list[str]:
    """The command that runs a program, without its arguments. It is compiled into `directory`. `jars`: the name of a
    directory below .cache/jars. `options`: of Java. `package`: of the program, with a dot behind it."""
    classpath = f"{need_jars(jars)}/*"
    javac = need_command("javac", "install a JDK, 17 or newer")
    run([javac, "-cp", classpath, "-d", str(directory), str(source)], timeout_s=COMPILED_WITHIN_S)
    return ["java", "-Xmx512m", *QUICK_JVM, *options, "-cp", f"{directory}:{classpath}", f"{package}{source.stem}"]
