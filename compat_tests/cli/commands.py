"""Runs `kafkawire` as a user types it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from compat_tests.harness.kafkawire_broker import KAFKAWIRE

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

TIMEOUT_S = 60


def kafkawire(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(KAFKAWIRE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def asked(broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that is a client of the broker."""
    return kafkawire(*arguments, "--bootstrap-server", broker.bootstrap)


def document(broker: Broker, *arguments: str) -> Any:
    """What a command that succeeds tells programs."""
    done = asked(broker, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refusal(broker: Broker, *arguments: str) -> str:
    """The one line in which a command says why not."""
    done = asked(broker, *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1].removeprefix("Error: ")
