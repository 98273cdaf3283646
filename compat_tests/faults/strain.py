"""Three brokers under saturating load, and ordinary trouble: nothing is killed, and all trouble must be over soon.

Producers with acks=all send as much as the cluster takes. Meanwhile a disk is slow, a process or a ZooKeeper server is
frozen, a partition loses its directory, the metadata are damaged, a disk is full, a link is slow. After each fault the
rate has to be back in 30 s, the ISR has to be full, no broker may have taken more memory than its share, and all
acknowledged records of a second topic with small records (the ledger) have to be there in the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient

from compat_tests.clients.confluent.clients import Admin, new_consumer, producer, wait_until_whole
from compat_tests.faults.disk_faults import LEFT_BYTES, stops_on_full_disk
from compat_tests.faults.in_sync import lacks_of
from compat_tests.faults.loop_image import LoopImage
from compat_tests.faults.saturation import RETENTION_BROKER_CONFIG, RETENTION_TOPIC_CONFIG, SaturatingProducers
from compat_tests.faults.slow_disk_broker import SlowDiskKafkawire
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.network import Network, inside
from compat_tests.harness.zookeeper import zookeeper_ensemble
from coordinator.metadata_store import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    from confluent_kafka import Message, Producer

    from compat_tests.harness.network import Host
    from compat_tests.harness.zookeeper import ZooKeeperEnsemble

LOAD, LEDGER = "load", "ledger"
PARTITIONS, BROKERS = 12, 3
SESSION_TIMEOUT_MS = 6_000
CONFIG: Final = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "offsets.topic.num.partitions": "3",
    # After a fault that fences brokers, one broker leads all partitions. One core carries less than the load.
    "leader.imbalance.check.interval.seconds": "5",
    **RETENTION_BROKER_CONFIG,
}
LEDGER_CONFIG: Final = {"min.insync.replicas": "2"}
LOAD_CONFIG: Final = {**RETENTION_TOPIC_CONFIG, **LEDGER_CONFIG}
IMAGE_SIZE_MIB: Final = 6 * 1024  # of each broker's disk; sparse
SLOW_LINK_BYTES_PER_S: Final = 1_000_000
MEMORY_MAX_MIB: Final = 1024
WARM_UP_S: Final = 120.0  # until segments are deleted as fast as they are written
RECOVERED_WITHIN_S: Final = 30.0
RECOVERED_TO: Final = 0.8  # of the rate before the fault
WINDOW_S: Final = 10.0  # a rate after a fault is the median of three windows
IN_SYNC_WITHIN_S: Final = 300.0  # a replica that was away copies little faster than the load writes
LEDGER_PAUSE_S: Final = 0.005
QUIET_S: Final = 30.0  # without a record, the ledger is read to its end


@dataclass
class StrainResult:
    """`rates`: of each fault, the records a second before and after it."""

    faults: Counter[str]
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    acked: int = 0
    in_ledger: int = 0
    memory_mib: list[int] = field(default_factory=list)
    anomalies: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        least = min((after / max(before, 1) for rates in self.rates.values() for before, after in rates), default=1.0)
        return (
            f"{faults}; {self.acked} records of 16 KiB and {self.in_ledger} of a ledger acknowledged; the rate after a "
            f"fault is {least:.0%} of before or more; {max(self.memory_mib)} MiB at most; "
            f"{len(self.anomalies)} anomalies"
        )


class Ledger:
    """A producer of small records with acks=all that remembers the acknowledged numbers."""

    def __init__(self, cluster: KafkawireCluster) -> None:
        self._cluster = cluster
        self._client: Producer = producer(cluster, acks="all", enable_idempotence=True)
        self._next = 0
        self.acked: set[int] = set()

    def write(self) -> None:
        """Write the next record, then pause."""
        try:
            self._client.produce(LEDGER, b"%d" % self._next, on_delivery=self._delivered)
            self._next += 1
        except BufferError:
            pass
        self._client.poll(0)
        time.sleep(LEDGER_PAUSE_S)

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acked.add(int(message.value() or b"0"))

    def lost(self) -> list[int]:
        """The numbers of acknowledged records that are missing."""
        self._client.flush(60)
        found: set[int] = set()
        reader = new_consumer(self._cluster, auto_offset_reset="earliest")
        reader.assign([TopicPartition(LEDGER, 0, 0)])
        quiet_s = time.monotonic() + QUIET_S
        while not self.acked <= found and time.monotonic() < quiet_s:
            for message in reader.consume(1000, 1.0):
                if message.error() is None:
                    found.add(int(message.value() or b"0"))
                    quiet_s = time.monotonic() + QUIET_S
        reader.close()
        return sorted(self.acked - found)


@dataclass(frozen=True)
class Machine:
    """A broker with a link and a disk of its own."""

    broker: SlowDiskKafkawire
    host: Host
    disk: LoopImage

    @property
    def log_dir(self) -> Path:
        return self.disk.mount_point / "data"


@dataclass(frozen=True)
class Strained:
    """The cluster that the faults hit."""

    cluster: KafkawireCluster
    ensemble: ZooKeeperEnsemble
    machines: list[Machine]


class Faults:
    """The faults. Each method returns when its fault is over. Brokers are chosen at random."""

    def __init__(self, random: Random, strained: Strained, wait: Callable[[float], None]) -> None:
        self._random = random
        self._ensemble = strained.ensemble
        self._machines = strained.machines
        self._wait = wait

    def _broker(self) -> SlowDiskKafkawire:
        return self._random.choice(self._machines).broker

    def all(self) -> list[Callable[[], None]]:
        return [
            self.freeze_a_broker,
            self.slow_down_a_disk,
            self.silence_zookeeper,
            self.break_a_partition,
            self.damage_the_metadata,
            self.fill_a_disk,
            self.slow_down_a_link,
        ]

    def freeze_a_broker(self) -> None:
        one = self._broker()
        os.kill(one.pid, signal.SIGSTOP)
        try:
            self._wait(self._random.uniform(2, 20))
        finally:
            os.kill(one.pid, signal.SIGCONT)

    def slow_down_a_disk(self) -> None:
        one = self._broker()
        one.sync_takes(self._random.uniform(0.1, 3))
        self._wait(self._random.uniform(10, 40))
        one.sync_takes(0)

    def silence_zookeeper(self) -> None:
        """Pause a ZooKeeper server: connections to it stay open and are silent."""
        with self._ensemble.servers[0].paused():
            self._wait(self._random.uniform(2, 4) * SESSION_TIMEOUT_MS / 1000)

    def break_a_partition(self) -> None:
        """Delete the directory of a partition in a log dir that is well."""
        machine = self._random.choice(self._machines)
        machine.broker.kill()
        found = [path for path in machine.log_dir.iterdir() if path.name.startswith(f"{LOAD}-")]
        shutil.rmtree(self._random.choice(sorted(found)))
        machine.broker.start()

    def damage_the_metadata(self) -> None:
        """Add a next change that is unreadable to the change log, and remove it later."""
        client = KazooClient(self._ensemble.connect)
        client.start()
        try:
            newest = max(int(name) for name in client.get_children(paths.CHANGES))
            path = paths.change(newest + 1)
            client.create(path, b"\x00 no change")
            self._wait(15)
            client.delete(path)
        finally:
            client.stop()
            client.close()

    def fill_a_disk(self) -> None:
        """Fill a disk for a moment. A broker whose only log dir failed stops, and is started again."""
        machine = self._random.choice(self._machines)
        log_before = machine.broker.log_path.read_text()
        machine.disk.fill(LEFT_BYTES)
        self._wait(self._random.uniform(2, 15))
        machine.disk.empty()
        if stops_on_full_disk(machine.broker, log_before):
            machine.broker.start()

    def slow_down_a_link(self) -> None:
        host = self._random.choice(self._machines).host
        host.limit_bandwidth(SLOW_LINK_BYTES_PER_S)
        try:
            self._wait(self._random.uniform(10, 40))
        finally:
            host.unlimit_bandwidth()


class Campaign:
    """A single run of the campaign."""

    def __init__(self, random: Random, strained: Strained, producers: int) -> None:
        self._random = random
        self._cluster = strained.cluster
        self._ledger = Ledger(strained.cluster)
        self._faults = Faults(random, strained, self._pass)
        self._producers = producers
        self._outcome = StrainResult(Counter())

    def run(self, seconds: float) -> StrainResult:
        deadline_s = time.monotonic() + seconds
        outcome = self._outcome
        with SaturatingProducers(self._cluster, LOAD, self._producers) as load:
            self._warm_up(load)
            while time.monotonic() < deadline_s:
                for fault in self._random.sample(self._faults.all(), len(self._faults.all())):
                    self._strike(fault, load)
            outcome.acked = load.acknowledged
        lost = self._ledger.lost()
        outcome.in_ledger = len(self._ledger.acked)
        if lost:
            self._note(f"{len(lost)} acknowledged records of the ledger are lost: {lost[:5]}")
        self._check_memory()
        return outcome

    def _warm_up(self, load: SaturatingProducers) -> None:
        rates = [self._window(load) for _ in range(round(WARM_UP_S / WINDOW_S))]
        print(f"records/s while it warms up: {_listed(rates)}", flush=True)

    def _strike(self, fault: Callable[[], None], load: SaturatingProducers) -> None:
        name = fault.__name__.replace("_", " ")
        before = self._rate(load)
        begun_s = time.monotonic()
        fault()
        self._outcome.faults[name] += 1
        ended_s = time.monotonic()
        windows = self._recovery(load, before)
        after = median(windows[-3:])
        print(
            f"{name}, {ended_s - begun_s:.0f} s: {before:.0f} records/s before, {_listed(windows)} after it", flush=True
        )
        self._outcome.rates.setdefault(name, []).append((before, after))
        if after < RECOVERED_TO * before:
            self._note(f"behind {name}: {after:.0f} records/s, {before:.0f} before")
        while lacks := [lack for one in self._cluster.brokers.values() for lack in lacks_of(one)]:
            if time.monotonic() > ended_s + RECOVERED_WITHIN_S + IN_SYNC_WITHIN_S:
                self._note(f"behind {name}: not in sync: {lacks[:3]}")
                break
            self._pass(1)
        self._check_memory()

    def _recovery(self, load: SaturatingProducers, before: float) -> list[float]:
        """The rates of windows after a fault, until the median of three is enough, or the third begins too late."""
        windows = [self._window(load) for _ in range(3)]
        while median(windows[-3:]) < RECOVERED_TO * before and (len(windows) - 3) * WINDOW_S < RECOVERED_WITHIN_S:
            windows.append(self._window(load))
        return windows

    def _rate(self, load: SaturatingProducers) -> float:
        """Records a second before a fault: the median of a minute, because single windows differ by a fifth."""
        return median([self._window(load) for _ in range(6)])

    def _window(self, load: SaturatingProducers) -> float:
        """Records a second in one window."""
        before, begun_s = load.acknowledged, time.monotonic()
        self._pass(WINDOW_S)
        return (load.acknowledged - before) / (time.monotonic() - begun_s)

    def _pass(self, seconds: float) -> None:
        """Write to the ledger for so many seconds."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            self._ledger.write()

    def _check_memory(self) -> None:
        for number, one in self._cluster.brokers.items():
            with open(f"/proc/{one.pid}/status", encoding="ascii") as status:
                mib = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))
            self._outcome.memory_mib.append(mib)
            if mib > MEMORY_MAX_MIB:
                self._note(f"broker {number} has taken {mib} MiB")

    def _note(self, anomaly: str) -> None:
        print(f"ANOMALY: {anomaly}", flush=True)
        self._outcome.anomalies.append(anomaly)


def _listed(rates: list[float]) -> str:
    return ", ".join(f"{rate:.0f}" for rate in rates)


@contextmanager
def strained_cluster(directory: Path) -> Iterator[Strained]:
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        stack.enter_context(inside(network.hub))
        ensemble = stack.enter_context(zookeeper_ensemble(directory / "zookeeper", size=1, hosts=[network.add()]))
        hosts = [network.add() for _ in range(BROKERS)]
        cluster = KafkawireCluster(directory / "brokers", CONFIG, ensemble.connect, hosts=hosts)
        machines = []
        for (number, one), host in zip(cluster.brokers.items(), hosts, strict=True):
            disk = stack.enter_context(LoopImage(directory / "disks" / str(number), IMAGE_SIZE_MIB, is_direct=True))
            broker = SlowDiskKafkawire(
                one.directory, {**one.overrides, "log.dirs": str(disk.mount_point / "data")}, host
            )
            cluster.brokers[number] = broker
            machines.append(Machine(broker, host, disk))
        stack.enter_context(cluster)
        for topic, partitions, config in ((LOAD, PARTITIONS, LOAD_CONFIG), (LEDGER, 1, LEDGER_CONFIG)):
            Admin(cluster).create(NewTopic(topic, partitions, BROKERS, config=config))
            wait_until_whole(cluster, topic)
        yield Strained(cluster, ensemble, machines)


def run(directory: Path, random: Random, seconds: float, producers: int) -> StrainResult:
    """Inject faults for so many seconds, at least one of each kind."""
    with strained_cluster(directory) as strained:
        return Campaign(random, strained, producers).run(seconds)
