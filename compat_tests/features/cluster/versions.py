"""Brokers of different versions in one cluster: today's, an earlier one, and a later one with an unknown field."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import pytest
from kazoo.client import KazooClient

from compat_tests.harness.cluster import membership
from compat_tests.harness.kafkawire_broker import Kafkawire, program_of
from compat_tests.harness.requirements import ROOT
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from compat_tests.harness.kafkawire_broker import Program

# With the commit that brought this, brokers formed clusters that clients were tried on: no version before has to mix.
FIRST_WITH: Final = "compat_tests/harness/cluster.py"
ZOOKEEPER_TIMEOUT_S: Final = 20.0
TODAY: Final = Kafkawire.program
TOMORROW: Final = program_of("compat_tests.features.cluster.newer_broker")


class Replaceable(Kafkawire):
    """A broker in a cluster; between a stop and a start `program` may become another one."""

    def __init__(
        self,
        directory: Path,
        connect: str,
        broker_id: int,
        program: Program = TODAY,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, membership(directory, connect, broker_id) | dict(overrides or {}))
        self.broker_id = broker_id
        self.program = program

    def replace(self, program: Program) -> None:
        """Stop a broker in order, and start it as another version."""
        assert self.stop() == 0, self.log_tail()
        self.program = program
        self.start()


@contextmanager
def cluster(
    directory: Path, connect: str, *programs: Program, overrides: Mapping[str, str] | None = None
) -> Iterator[list[Replaceable]]:
    """A broker of each version, with ids from 1."""
    brokers = [
        Replaceable(directory / str(broker_id), connect, broker_id, program, overrides)
        for broker_id, program in enumerate(programs, 1)
    ]
    with ExitStack() as stack, ThreadPoolExecutor(len(brokers)) as pool:
        list(pool.map(Replaceable.start, brokers))
        for broker in brokers:
            stack.enter_context(broker)
        yield brokers


def member(connect: str, broker_id: int) -> dict[str, Any]:
    """The node of a broker in the metadata."""
    client = KazooClient(connect, timeout=ZOOKEEPER_TIMEOUT_S)
    client.start()
    value, _ = client.get(f"/members/{broker_id}")
    client.stop()
    client.close()
    found: dict[str, Any] = json.loads(value)
    return found


def earliest(directory: Path) -> Program:
    """The first version with clusters, whose sources are written into the directory. Skips the test without git
    history."""
    if run(["git", "rev-parse", "--is-shallow-repository"], directory=ROOT, check=False).strip() != "false":
        pytest.skip("there is no history of the project here: git fetch --unshallow, in a clone of it")
    added = ["git", "log", "--diff-filter=A", "--format=%H", "--", FIRST_WITH]
    *_, commit = run(added, directory=ROOT).split()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, timeout=60, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        packed.extractall(directory, filter="data")
    return ("env", f"PYTHONPATH={directory}", sys.executable, "-m", "kafkawire")
