"""Several brokers of one cluster; for a test, one `Broker` with several addresses."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from compat_tests.harness import whereabouts
from compat_tests.harness.broker import READY_TIMEOUT_S, STOP_TIMEOUT_S, Broker

if TYPE_CHECKING:
    from collections.abc import Callable

BrokerT = TypeVar("BrokerT", bound=Broker)
ResultT = TypeVar("ResultT")


class SeveralBrokers(Broker, Generic[BrokerT]):
    """A cluster as one broker: each operation is done on all of its brokers, so that `kill` ends several processes.
    `brokers` are by id."""

    brokers: dict[int, BrokerT]

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers.values())

    def leader_id(self, topic: str, partition: int = 0) -> int:
        return whereabouts.leader_id(self._port_of_some, topic, partition)

    def coordinator_of(self, transactional_id: str) -> BrokerT:
        return self.brokers[whereabouts.coordinator_id(self._port_of_some, transactional_id)]

    @property
    def _port_of_some(self) -> int:
        """The port of a broker that runs."""
        return next(one.port for one in self.brokers.values() if one.is_alive)

    @property
    def is_alive(self) -> bool:
        return all(one.is_alive for one in self.brokers.values())

    def command(self) -> list[str]:
        raise NotImplementedError("each of its brokers has one")

    def prepare(self) -> None:
        """Each of its brokers prepares itself."""

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the brokers that do not run."""

        def start(one: BrokerT) -> None:
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

    def _each(self, work: Callable[[BrokerT], ResultT]) -> list[ResultT]:
        """Run work for all brokers at the same time, as they may wait for each other."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            return list(pool.map(work, self.brokers.values()))
