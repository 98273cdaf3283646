"""A kafkawire broker as a user starts it: `kafkawire serve` from the environment that runs the tests."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compat_tests.harness.broker import Broker, free_port
from compat_tests.harness.requirements import COMPILED, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat_tests.harness.network import Host

KAFKAWIRE = Path(sys.executable).parent / "kafkawire"
Program = tuple[str, ...]  # the words in the place of `kafkawire` on a command line


def program_of(module: str, **environment: str) -> Program:
    """The command line of a module of this project in the place of `kafkawire`."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    return ("env", f"PYTHONPATH={ROOT}", *variables, sys.executable, "-m", module)


class Kafkawire(Broker):
    """A fresh broker; `overrides` go on its command line."""

    name = "kafkawire"
    ready_line = re.compile(r"^kafkawire ready", re.MULTILINE)
    in_order = (0,)
    bug_line = re.compile(r"^.*handler failed", re.MULTILINE)
    program: Program = (str(KAFKAWIRE),)

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None, host: Host | None = None) -> None:
        """`host`: where it runs, if not here."""
        super().__init__(directory, overrides)
        self.ip = "127.0.0.1" if host is None else host.address
        self.http_port = free_port()
        self.host = host

    @property
    def bootstrap(self) -> str:
        return f"{self.ip}:{self.port}"

    @property
    def http_url(self) -> str:
        """The URL of its HTTP listener."""
        return f"http://{self.ip}:{self.http_port}"

    def prepare(self) -> None:
        """Prepare nothing: kafkawire needs no more than a directory."""

    def command(self) -> list[str]:
        properties = {
            **(self.listeners() if self.host is None else {"listeners": f"PLAINTEXT://{self.bootstrap}"}),
            "http.listeners": self.http_url,
            "log.dirs": str(self.data_dir),
            "log.initial.task.delay.ms": "86400000",  # as for Apache Kafka: tests write timestamps that are years old
            **self.overrides,
        }
        overrides = [part for key, value in properties.items() for part in ("--set", f"{key}={value}")]
        command = [*self.program, "serve", *overrides]
        return command if self.host is None else self.host.command(command)


class CompiledKafkawire(Kafkawire):
    """The same with compiled modules (`make compiled`)."""

    name = "kafkawire compiled"

    program = ("env", f"PYTHONPATH={COMPILED}", *Kafkawire.program)
