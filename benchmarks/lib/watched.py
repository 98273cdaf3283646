"""Brokers that are started through a module of this folder, which writes its notes when the broker leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compat_tests.harness.kafkawire_broker import program_of

if TYPE_CHECKING:
    from compat_tests.harness.kafkawire_broker import Kafkawire

OUTPUT: Final = "KAFKAWIRE_NOTES"  # the file the notes go to


def watch(broker: Kafkawire, module: str) -> None:
    """Start the broker through that module from now on."""
    broker.program = program_of(f"benchmarks.lib.{module}", **{OUTPUT: str(_path(broker))})


def notes_of(broker: Kafkawire) -> Any:
    """The notes of a watched broker that has stopped in order."""
    return json.loads(_path(broker).read_text())


def write(notes: Any) -> None:
    """Write the notes, in the broker's process."""
    Path(os.environ[OUTPUT]).write_text(json.dumps(notes))


def _path(broker: Kafkawire) -> Path:
    return broker.directory / "notes.json"
