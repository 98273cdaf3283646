"""Faults of brokers and ZooKeeper servers, each a host at one switch: killed, paused, restarted, cut off.

A fault is over when all of them run and reach each other again. Its method blocks until then: code with an event loop
calls it from a thread.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from compat_tests.harness.cluster import KafkawireCluster
    from compat_tests.harness.kafkawire_broker import Kafkawire
    from compat_tests.harness.network import Host, Network
    from compat_tests.harness.zookeeper import ZooKeeperEnsemble

    FaultAction = Callable[[], None]


def name_of(fault: FaultAction) -> str:
    return fault.__name__.replace("_", " ")


class HostFaults:
    """Faults of the hosts of a cluster. Each lasts for up to two ZooKeeper session timeouts."""

    def __init__(
        self,
        random: Random,
        network: Network,
        ensemble: ZooKeeperEnsemble,
        cluster: KafkawireCluster,
        session_timeout_ms: int,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.killed: list[tuple[Kafkawire, float]] = []  # and when, by the clock of `time.monotonic`
        self._random = random
        self._network = network
        self._ensemble = ensemble
        self._cluster = cluster
        self._brokers = list(cluster.brokers.values())
        self._lasts_max_s = 2 * session_timeout_ms / 1000

    def strike(self, fault: FaultAction) -> None:
        self.counts[name_of(fault)] += 1
        fault()

    def heal(self) -> None:
        """End all faults: all hosts run and reach each other."""
        self._network.heal()
        self._ensemble.wait_ready()
        self._cluster.start()

    # Kills

    def kill_server(self) -> None:
        self._random.choice(self._ensemble.servers).kill()
        self._while_it_lasts()
        self._ensemble.start()

    def kill_broker(self) -> None:
        self._kill(self._sampled_brokers(1))

    def kill_two_brokers(self) -> None:
        self._kill(self._sampled_brokers(2))

    def kill_all_brokers(self) -> None:
        self._kill(self._brokers)

    def lose_broker(self) -> None:
        """Kill a broker and cut its host off, so that connections to it time out instead of being refused."""
        [broker] = some = self._sampled_brokers(1)
        with self._parted([_host_of(broker)], self._others([_host_of(broker)])):
            self._kill(some)

    def _kill(self, brokers: Sequence[Kafkawire]) -> None:
        for one in brokers:
            one.kill()
            self.killed.append((one, time.monotonic()))
        if self._random.random() < 0.5:
            self._while_it_lasts()
        self.heal()

    # Pauses and restarts

    def pause_server(self) -> None:
        with self._random.choice(self._ensemble.servers).paused():
            self._while_it_lasts()
        self.heal()

    def pause_broker(self) -> None:
        [broker] = self._sampled_brokers(1)
        os.kill(broker.pid, signal.SIGSTOP)
        self._while_it_lasts()
        os.kill(broker.pid, signal.SIGCONT)

    def restart_broker(self) -> None:
        self._restart(self._sampled_brokers(1))

    def restart_all_in_turn(self) -> None:
        self._restart(self._brokers)

    def _restart(self, brokers: Sequence[Kafkawire]) -> None:
        for one in brokers:
            code = one.stop()
            assert code == 0, f"a broker that was asked to leave left with {code}"
            one.start()

    # Cuts

    def cut_off_broker(self) -> None:
        some = self._hosts(1)
        self._part(some, self._others(some))

    def cut_off_server(self) -> None:
        some = [self._random.choice(self._servers)]
        self._part(some, self._others(some))

    def cut_off_from_zookeeper(self) -> None:
        self._part(self._hosts(1), self._servers)

    def halve(self) -> None:
        """Cut two brokers and one ZooKeeper server off from all others."""
        some = [self._random.choice(self._servers), *self._hosts(2)]
        self._part(some, self._others(some))

    def leave_two_without_zookeeper(self) -> None:
        some = self._hosts(2)
        self._part(some, self._others(some))

    def leave_a_bridge(self) -> None:
        """Cut two hosts off from each other; all other hosts still reach both."""
        one, other = self._hosts(2)
        self._part([one], [other])

    def cut_one_way(self) -> None:
        """Lose the packets that one host sends, either to one other host or to all of them."""
        [one] = self._hosts(1)
        others = self._others([one])
        for other in others if self._random.random() < 0.5 else self._random.sample(others, 1):
            one.lose(other)
        self._while_it_lasts()
        self.heal()

    def cut_one_way_in(self) -> None:
        """Lose all packets that are sent to one host; its own packets still arrive."""
        [one] = self._hosts(1)
        for other in self._others([one]):
            other.lose(one)
        self._while_it_lasts()
        self.heal()

    def _part(self, some: list[Host], others: list[Host]) -> None:
        with self._parted(some, others):
            self._while_it_lasts()

    @contextmanager
    def _parted(self, some: list[Host], others: list[Host]) -> Iterator[None]:
        self._network.part(some, others)
        yield
        self.heal()

    # Choice of the hosts, and duration

    def _sampled_brokers(self, count: int) -> list[Kafkawire]:
        return self._random.sample(self._brokers, count)

    def _hosts(self, count: int) -> list[Host]:
        return [_host_of(one) for one in self._sampled_brokers(count)]

    @property
    def _servers(self) -> list[Host]:
        return [one.host for one in self._ensemble.servers if one.host is not None]

    def _others(self, some: list[Host]) -> list[Host]:
        return [one for one in self._network.hosts if one not in some]

    def _while_it_lasts(self) -> None:
        time.sleep(self._random.random() * self._lasts_max_s)


def _host_of(broker: Kafkawire) -> Host:
    assert broker.host is not None, "it runs at no host of its own"
    return broker.host
