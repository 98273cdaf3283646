"""The harness fails a test whose broker died, or logged a bug, even if its clients had no error."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients.confluent.clients import wait_until
from compat_tests.harness.broker import free_port
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from pathlib import Path


def test_a_broker_that_dies(tmp_path: Path) -> None:
    broker = Kafkawire(tmp_path)
    broker.start()
    assert broker.is_alive
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_alive, "it is still there")
    with pytest.raises(AssertionError, match="left by itself with -9"):
        broker.__exit__(None)


def test_a_broker_that_meets_a_bug(tmp_path: Path) -> None:
    broker = Kafkawire(tmp_path)
    broker.start()
    with broker.log_path.open("a") as log:
        log.write("connection closed: handler failed\n")
    with pytest.raises(AssertionError, match="met a bug"):
        broker.__exit__(None)


def test_a_dead_broker_does_not_hide_the_failure_of_a_test(tmp_path: Path) -> None:
    broker = Kafkawire(tmp_path)
    broker.start()
    os.kill(broker.pid, signal.SIGKILL)
    broker.__exit__(ZeroDivisionError)
    assert not broker.is_alive


def test_a_port_is_given_to_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each port is given to one broker only: brokers bind a second after they got their ports, and two got the same
    one."""
    taken = free_port()
    probe = f"import socket; socket.socket(type=socket.SOCK_DGRAM).bind(('127.0.0.1', {taken}))"
    elsewhere = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    assert "Address already in use" in elsewhere.stderr
    draws = iter([taken, taken])
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda _self, *bounds: next(draws, random.randrange(*bounds)))
    assert free_port() != taken
