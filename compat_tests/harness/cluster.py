"""Three kafkawire brokers on a ZooKeeper server; for a test, one `Broker` with three addresses."""

from __future__ import annotations

import atexit
import itertools
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.several import SeveralBrokers
from compat_tests.harness.zookeeper import ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compat_tests.harness.network import Host

ResultT = TypeVar("ResultT")
SIZE: Final = 3
SECRET: Final = "the brokers of a test know each other\n"

_chroots = itertools.count(1)


@cache
def shared_zookeeper() -> ZooKeeperEnsemble:
    """A ZooKeeper server for all clusters of the run, each of which has a chroot of its own."""
    directory = tempfile.TemporaryDirectory(prefix="zookeeper")
    atexit.register(directory.cleanup)
    ensemble = ZooKeeperEnsemble(Path(directory.name), size=1)
    atexit.register(ensemble.kill)
    ensemble.start()
    return ensemble


def membership(directory: Path, connect: str, broker_id: int) -> dict[str, str]:
    """The keys that make a broker one of a cluster. Its neighbours' directories share the parent and a secret there."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    secret = directory.parent / "secret"
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(SECRET)
    return {
        "zookeeper.connect": connect,
        "inter.broker.secret.file": str(secret),
        "broker.id": str(broker_id),
    }


def broker_of(
    directory: Path,
    connect: str,
    broker_id: int,
    overrides: Mapping[str, str] | None = None,
    host: Host | None = None,
) -> Kafkawire:
    """A broker of a cluster, not yet started."""
    return Kafkawire(directory, membership(directory, connect, broker_id) | dict(overrides or {}), host)


class KafkawireCluster(SeveralBrokers[Kafkawire]):
    """A cluster of `size` brokers. Topics without a replication factor have a replica on each. `hosts`: where the
    brokers run, if not here."""

    name = "kafkawire cluster"

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        connect: str | None = None,
        size: int = SIZE,
        hosts: Sequence[Host] = (),
    ) -> None:
        super().__init__(directory, overrides)
        self.data_dir = directory  # theirs are in it
        connect = connect or f"{shared_zookeeper().connect}/clusters/{next(_chroots)}"
        replicated = {"default.replication.factor": str(size)} | dict(overrides or {})
        self.brokers = {
            broker_id: broker_of(directory / str(broker_id), connect, broker_id, replicated, host)
            for broker_id, host in enumerate(hosts or [None] * size, 1)
        }
