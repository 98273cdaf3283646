"""`benchmarks.parts.floor` as a process of its own, for benchmarks to stand beside a broker."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from benchmarks.lib import machine
from compat_tests.harness.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path


class Floor(Broker):
    """The floor in one of its modes: async, journal, sync."""

    name = "floor"
    ready_line = re.compile(r"^ready", re.MULTILINE)

    def __init__(self, directory: Path, mode: str) -> None:
        super().__init__(directory)
        self.mode = mode

    def prepare(self) -> None:
        """Prepare nothing: the program makes its directory."""

    def command(self) -> list[str]:
        arguments = [str(self.port), str(self.data_dir), self.mode]
        return ["env", f"PYTHONPATH={machine.ROOT}", sys.executable, "-m", "benchmarks.parts.floor", *arguments]
