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
    """A command that is a client of the broker."""
    return kafkawire(*arguments, "--bootstrap-server", broker.bootstrap)


@contextmanager
def going_on(broker: Broker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A client that goes on until it is told to leave. One that hangs is killed, so that reading from it has an end."""
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
