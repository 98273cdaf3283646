"""Three of our brokers on a ZooKeeper server, to a test one `Broker` with three addresses."""

from __future__ import annotations

import atexit
import itertools
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from compat_tests.harness import whereabouts
from compat_tests.harness.broker import READY_TIMEOUT_S, STOP_TIMEOUT_S, Broker
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.zookeeper import ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compat_tests.harness.network import Host

ResultT = TypeVar("ResultT")
SIZE: Final = 3
SECRET: Final = "the brokers of a test know each other\n"

_chroots = itertools.count(1)


@cache
def shared_zookeeper() -> ZooKeeperEnsemble:
    """One server for all clusters of the run, each of which has a chroot of its own."""
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
    """One broker of a cluster, not yet started."""
    return Kafkawire(directory, membership(directory, connect, broker_id) | dict(overrides or {}), host)


class KafkawireCluster(Broker):
    """What is done to the broker is done to all of them: `kill` ends three processes. `brokers` are by id."""

    name = "kafkawire cluster"
    brokers: dict[int, Kafkawire]

    def __init__(
        self, directory: Path, overrides: Mapping[str, str] | None = None, connect: str | None = None, size: int = SIZE
    ) -> None:
        super().__init__(directory, overrides)
        self.data_dir = directory  # theirs are in it
        connect = connect or f"{shared_zookeeper().connect}/clusters/{next(_chroots)}"
        replicated = {"default.replication.factor": str(size)} | dict(overrides or {})
        self.brokers = {
            broker_id: broker_of(directory / str(broker_id), connect, broker_id, replicated)
            for broker_id in range(1, size + 1)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers.values())

    def leader_id(self, topic: str, partition: int = 0) -> int:
        return whereabouts.leader_id(self._port_of_some, topic, partition)

    def coordinator_of(self, transactional_id: str) -> Kafkawire:
        return self.brokers[whereabouts.coordinator_id(self._port_of_some, transactional_id)]

    @property
    def _port_of_some(self) -> int:
        """Of a broker that runs."""
        return next(one.port for one in self.brokers.values() if one.is_alive)

    @property
    def is_alive(self) -> bool:
        return all(one.is_alive for one in self.brokers.values())

    def command(self) -> list[str]:
        raise NotImplementedError("each of its brokers has one")

    def prepare(self) -> None:
        """Each of its brokers prepares itself."""

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Those that do not run."""

        def start(one: Kafkawire) -> None:
            if not one.is_alive:
                one.start(timeout_s)

        self._each(start)

    def launch(self) -> int:
        return max(one.launch() for one in self.brokers.values() if not one.is_alive)

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int:
        return max(self._each(lambda one: one.stop(number, timeout_s)))

    def kill(self) -> None:
        self._each(lambda one: one.kill())

    def log_tail(self) -> str:
        return "\n".join(one.log_tail() for one in self.brokers.values())

    def __enter__(self) -> Self:
        self._each(lambda one: one.__enter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self._each(lambda one: one.__exit__(kind, *exception))

    def _each(self, work: Callable[[Kafkawire], ResultT]) -> list[ResultT]:
        """At the same time, as they may wait for each other."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            return list(pool.map(work, self.brokers.values()))
