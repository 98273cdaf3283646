"""`kafkawire demo` as a newcomer types it: with a broker, and where there is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from compat_tests.features.cli.commands import TIMEOUT_S, asked, document
from compat_tests.harness.broker import free_port, someone_listens
from compat_tests.harness.kafkawire_broker import KAFKAWIRE

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.broker import Broker


def test_on_a_broker_that_runs(broker: Broker, topic: str) -> None:
    told = document(broker, "demo", "--topic", topic)
    assert (told["started"], told["created"]) == (None, True)
    done = asked(broker, "demo", "--topic", topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Topic {topic} was there" in done.stdout
    assert len(told["next"]) == 5
    for command in told["next"]:
        typed = subprocess.run(
            ["/bin/sh", "-c", command], env={"PATH": f"{KAFKAWIRE.parent}:{os.environ['PATH']}"},
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert (typed.returncode, typed.stderr) == (0, ""), command


def test_where_there_is_none(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    command = [str(KAFKAWIRE), "demo", "-b", address, "-o", "json", "--timeout", str(TIMEOUT_S)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    pid = json.loads(done.stdout)["started"]["pid"]
    try:
        again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        assert json.loads(again.stdout)["started"] is None
    finally:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + TIMEOUT_S
    while someone_listens(address):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (tmp_path / "data").is_dir()
