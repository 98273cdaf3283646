"""Runs `kafkawire` as a user types it."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

from compat_tests.harness.kafkawire_broker import KAFKAWIRE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.broker import Broker

TIMEOUT_S = 60
GOES_ON_MAX_S = 180


def kafkawire(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(KAFKAWIRE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def asked(broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is a client of the broker."""
    return kafkawire(*arguments, "--bootstrap-server", broker.bootstrap)


@contextmanager
def going_on(broker: Broker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A client command that runs until it is told to leave. If it hangs, it is killed, so that reading from it ends."""
    command = [str(KAFKAWIRE), *arguments, "--bootstrap-server", broker.bootstrap]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        limit = threading.Timer(GOES_ON_MAX_S, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def document(broker: Broker, *arguments: str) -> Any:
    """The JSON output of a command that succeeds."""
    done = asked(broker, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refusal(broker: Broker, *arguments: str) -> str:
    """The only line of a command that fails."""
    done = asked(broker, *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1].removeprefix("Error: ")
