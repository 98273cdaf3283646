"""A ZooKeeper server for the run, and the sources of an earlier version."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from compat_tests.features.cluster.versions import earliest
from compat_tests.harness.requirements import need_zookeeper_jars
from compat_tests.harness.zookeeper import ZooKeeperEnsemble, zookeeper_ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.harness.kafkawire_broker import Program

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    need_zookeeper_jars()
    with zookeeper_ensemble(tmp_path_factory.mktemp("zookeeper"), size=1) as running:
        yield running


@pytest.fixture
def connect(zookeeper: ZooKeeperEnsemble) -> str:
    """The `zookeeper.connect` of the brokers of a new cluster."""
    return f"{zookeeper.connect}/clusters/{next(_numbers)}"


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return earliest(tmp_path_factory.mktemp("earlier"))
