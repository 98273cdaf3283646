"""Findings of `kafkawire doctor` about ZooKeeper: one clear line for each problem."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from coordinator.errors import CannotStart
from coordinator.metadata.unlogged_nodes import encode_cluster, encode_import
from coordinator.metadata_store import paths
from coordinator.metadata_store.store import Create, NoNode
from coordinator.testing.simulated_metadata_store import FakeEnsemble, FakeStore
from kafkawire.config.broker_config import load
from kafkawire.process.doctor import DirFacts, Finding, Severity
from kafkawire.process.zookeeper_findings import examine_zookeeper

if TYPE_CHECKING:
    from coordinator.metadata_store.zookeeper import ZooKeeperSettings

DIR = DirFacts(path="/data", exists=True, owner=("mine", 3))
MINE = Create(paths.CLUSTER, encode_cluster("mine"))


async def found(ensemble: FakeEnsemble, *dirs: DirFacts, error: Exception | None = None) -> list[Finding]:
    given = {"zookeeper.connect": "zk:2181/kafka", "inter.broker.secret.file": "/secret", "broker.id": "3"}

    async def connect(settings: ZooKeeperSettings) -> FakeStore:
        await trio.lowlevel.checkpoint()
        assert settings.connect == "zk:2181/kafka"
        if error is not None:
            raise error
        return ensemble.connect()

    return await examine_zookeeper(load(given)[0], dirs, connect)


async def test_a_cluster_that_is_fine_needs_no_word() -> None:
    ensemble = FakeEnsemble()
    await ensemble.connect().multi([MINE])
    assert await found(ensemble, DIR) == []
    assert await examine_zookeeper(load({"log.dirs": "/data"})[0], [DIR]) == []


async def test_finding_for_unreachable_zookeeper_has_the_text_of_the_failed_broker_start() -> None:
    [one] = await found(FakeEnsemble(), error=CannotStart("no ZooKeeper server of zk:2181 answered within 5 ms"))
    assert (one.severity, one.text) == (Severity.PROBLEM, "no ZooKeeper server of zk:2181 answered within 5 ms")


@pytest.mark.parametrize("error", [None, NoNode("")])
async def test_missing_cluster_in_zookeeper_is_only_a_note(error: Exception | None) -> None:
    [one] = await found(FakeEnsemble(), error=error)
    assert (one.severity, one.text.startswith("there is no cluster at zk:2181/kafka yet")) == (Severity.NOTE, True)


async def test_an_import_that_was_not_finished() -> None:
    ensemble = FakeEnsemble()
    await ensemble.connect().multi([Create(paths.IMPORT, encode_import("0" * 64))])
    [one] = await found(ensemble)
    assert (one.severity, "kafkawire metadata import" in one.advice) == (Severity.PROBLEM, True)


async def test_log_dirs_of_another_cluster() -> None:
    ensemble = FakeEnsemble()
    await ensemble.connect().multi([Create(paths.CLUSTER, encode_cluster("other"))])
    [one] = await found(ensemble, DIR)
    assert (one.severity, one.text) == (Severity.PROBLEM, "it has cluster other, and log dirs are of cluster mine")


async def test_a_cluster_of_another_version() -> None:
    ensemble = FakeEnsemble()
    await ensemble.connect().multi([Create(paths.CLUSTER, b'{"v":3}')])
    [one] = await found(ensemble)
    assert "/cluster has the format 3" in one.text


async def test_another_broker_with_this_id() -> None:
    ensemble = FakeEnsemble()
    await ensemble.connect().multi([MINE, Create(paths.BROKERS, b""), Create(paths.broker(3), b"", ephemeral=True)])
    [one] = await found(ensemble, DIR)
    assert (one.severity, one.text.startswith("a broker 3 is registered")) == (Severity.WARNING, True)
    running = DirFacts(path="/data", exists=True, owner=("mine", 3), is_in_use=True)
    assert await found(ensemble, running) == []


async def test_a_connection_that_is_lost_again() -> None:
    ensemble = FakeEnsemble()
    ensemble.connect = partial(_disconnected, ensemble)  # type: ignore[method-assign]
    [one] = await found(ensemble)
    assert (one.severity, one.text.startswith("the connection was lost again")) == (Severity.PROBLEM, True)


def _disconnected(ensemble: FakeEnsemble) -> FakeStore:
    store = FakeStore(ensemble)
    store.disconnected = True
    return store
