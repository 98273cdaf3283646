"""`kafkawire doctor` and the start of a broker name each problem with ZooKeeper in one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio

from compat_tests.features.cli.commands import kafkawire
from compat_tests.harness.broker import BrokerFailedError, free_port
from compat_tests.harness.cluster import broker_of
from coordinator.metadata_store.zookeeper import ZooKeeperSettings, open_zookeeper

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.kafkawire_broker import Kafkawire
    from compat_tests.harness.zookeeper import ZooKeeperEnsemble

QUICKLY = {"zookeeper.connection.timeout.ms": "1500"}


def doctor(broker: Kafkawire) -> tuple[int, list[tuple[str, str]]]:
    """The exit code, and the severity and text of each finding about ZooKeeper."""
    options = [part for key, value in broker.overrides.items() for part in ("--set", f"{key}={value}")]
    done = kafkawire("doctor", "--set", f"log.dirs={broker.data_dir}", *options, "-o", "json")
    found = [one for one in json.loads(done.stdout) if one["about"] == "zookeeper.connect"]
    return done.returncode, [(one["severity"], one["finding"]) for one in found]


def start_refused(broker: Kafkawire) -> str:
    """The line with which a start fails."""
    with pytest.raises(BrokerFailedError):
        broker.start()
    (line,) = [line for line in broker.log_tail().splitlines() if not line.startswith("{")]
    return line.removeprefix("Error: ")


async def make_chroot(settings: ZooKeeperSettings) -> None:
    await (await open_zookeeper(settings)).close()


def test_servers_that_are_away(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    broker = broker_of(tmp_path / "1", f"{address}/kafka", 1, QUICKLY)
    line = f"no ZooKeeper server of {address} answered within 1500 ms"
    assert doctor(broker) == (1, [("problem", line)])
    assert start_refused(broker) == line


def test_credentials_that_are_refused(ensemble: ZooKeeperEnsemble, chroot: str, tmp_path: Path) -> None:
    connect = ensemble.connect + chroot
    trio.run(make_chroot, ZooKeeperSettings(connect, credentials="others:secret"))
    credentials = tmp_path / "credentials"
    credentials.write_text("broker:wrong")
    broker = broker_of(tmp_path / "1", connect, 1, {"zookeeper.credentials.file": str(credentials)})
    line = f"ZooKeeper ({connect}) refuses to read and write {chroot} with these credentials"
    assert doctor(broker) == (1, [("problem", line)])
    assert start_refused(broker) == line


def test_a_chroot_that_no_broker_has_made_stays_so(ensemble: ZooKeeperEnsemble, chroot: str, tmp_path: Path) -> None:
    broker = broker_of(tmp_path / "1", ensemble.connect + chroot, 1)
    for _ in range(2):
        code, [(severity, line)] = doctor(broker)
        assert (code, severity, "there is no cluster at" in line) == (0, "note", True)
    with broker:
        assert doctor(broker) == (0, [])
    assert doctor(broker) == (0, [])
