"""Cost of help: a shell that completes, or a user who asks for help, should not wait for the import of a broker."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from compat_tests.features.cli.commands import TIMEOUT_S
from kafkawire.cli import COMMANDS

HEAVY = {"coordinator", "engine", "h11", "plyvel", "prometheus_client", "starlette", "structlog", "trio"}
IMPORTED = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)


@pytest.mark.parametrize("command", ["", *COMMANDS, "bench produce", "topics create"])
def test_help_imports_nothing_of_a_broker(command: str) -> None:
    asked = [sys.executable, "-X", "importtime", "-m", "kafkawire", *command.split(), "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout.startswith("Usage: ")
    imported = set(IMPORTED.findall(done.stderr))
    assert "click" in imported
    assert {name.partition(".")[0] for name in imported} & HEAVY == set()
    ours = {name for name in imported if name.startswith("kafkawire.")}
    assert {name for name in ours if not name.startswith("kafkawire.cli")} == set()
