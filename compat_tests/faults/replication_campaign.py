"""Campaign: stock clients write, copy in transactions, and commit on three brokers that replicate, with faults.

Brokers are killed, lose their power or their disks, stand still, and do not reach each other or ZooKeeper. Each broker
is a host of its own at a switch, with a disk of its own. At the end all acknowledged records have to be there once, in
order, and byte for byte on all three.
"""

from __future__ import annotations

import math
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from compat_tests.clients.confluent.clients import Admin
from compat_tests.faults.disk_faults import IMAGE_SIZE_MIB, DiskFaults
from compat_tests.faults.faults import name_of
from compat_tests.faults.in_sync import lacks_of, metadata_of
from compat_tests.faults.loop_image import LoopImage
from compat_tests.faults.replicas import differences
from compat_tests.faults.replication_load import Load
from compat_tests.faults.spark_copy import OUTPUT as SPARK_OUTPUT
from compat_tests.faults.transformation import BROKER_CONFIG, INPUT, OUTPUT, PARTITIONS, TOPIC_CONFIG
from compat_tests.features.tiering.brokers import IN_TIER, QUICK, SEGMENT_OBJECTS
from compat_tests.harness.broker import BrokerFailedError
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.network import Network, inside
from compat_tests.harness.requirements import need_pyspark
from compat_tests.harness.sources import go_program
from compat_tests.harness.zookeeper import zookeeper_ensemble
from kafkawire.client.errors import ClientError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path

    from compat_tests.faults.faults import FaultAction

BROKERS: Final = 3
SESSION_TIMEOUT_MS: Final = 6_000
CONFIG: Final = {
    **BROKER_CONFIG,
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "replica.lag.time.max.ms": "5000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.cleaner.enable": "false",  # each replica compacts for itself: their bytes would not be the same
    "journal.slot.bytes": "1048576",
}
REPLICATED: Final = {**TOPIC_CONFIG, "min.insync.replicas": "2"}
CALM_MAX_S: Final = 3.0
SETTLED_WITHIN_S: Final = 90.0
SHOWN: Final = 3
SPARK_FROM_S: Final = 120.0
UNDER_WAY_S: Final = 0.1  # acknowledgements of a killed broker arrive within this time


class CampaignSettings(NamedTuple):
    """Settings of a campaign. `seconds`: its length; `faults`: names of its faults, all faults if empty; `has_tier`:
    records go into a remote tier, and the disks have only the segments that are not there yet."""

    seconds: float
    faults: frozenset[str] = frozenset()
    has_tier: bool = False


@dataclass
class CampaignResult:
    """The result of a campaign. `outages_s`: seconds from the loss of a leader to the next acknowledgement of its
    partition, by the name of the fault."""

    faults: Counter[str]
    acked: int
    copied: int
    by_spark: int
    sights: int = 0
    tiered: int = 0  # segments that the tier has in the end
    outages_s: dict[str, list[float]] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        outages = "; ".join(
            f"{len(each)} leaders gone by {name}: next acknowledgement after {median(each):.2f} s (median), "
            f"{max(each):.2f} s (max)"
            for name, each in sorted(self.outages_s.items())
        )
        totals = (
            f"{self.acked} records acknowledged, {self.copied} copied in transactions, {self.by_spark} by Spark, "
            f"{self.sights} sights of offsets" + f", {self.tiered} segments in the tier" * bool(self.tiered)
        )
        return "; ".join(part for part in (faults, totals, outages, f"{len(self.anomalies)} anomalies") if part)


class Campaign:
    """A single run of the campaign."""

    def __init__(
        self, directory: Path, cluster: KafkawireCluster, faults: DiskFaults, load: Load, random: Random
    ) -> None:
        self._random = random
        self._cluster = cluster
        self._brokers = list(cluster.brokers.values())
        self._faults = faults
        self._log_path = directory / "blows.log"
        # The fault, a partition that lost its leader, and the time.
        self._lost_leaders: list[tuple[str, int, float]] = []
        self._is_calm = False
        self._anomalies: list[str] = []
        self._load = load

    def run(self, settings: CampaignSettings) -> CampaignResult:
        self._load.start()
        self._settle()
        deadline_s = time.monotonic() + settings.seconds
        kinds = _chosen(self._faults.kinds(), settings.faults)
        deck: list[FaultAction] = []
        while time.monotonic() < deadline_s:
            deck = deck or self._random.sample(kinds, len(kinds))
            self._strike(deck.pop())
            self._rest()
        self._settle()
        self._check(self._load.stop_writing)
        for name, check in self._load.checks().items():
            self._guard(name, partial(self._check, check))
        self._settle()
        self._compare()
        return self._outcome()

    # Faults

    def _strike(self, fault: FaultAction) -> None:
        name, leaders, known = name_of(fault), self._leaders(), len(self._faults.killed)
        self._log_line(name)
        self._guard(name, lambda: self._faults.strike(fault))
        self._log_line(f"{name} is over")
        for broker, at_s in self._faults.killed[known:]:
            led = [number for number, leader in leaders.items() if self._cluster.brokers.get(leader) is broker]
            self._lost_leaders += [(name, number, at_s) for number in led]
        self._guard(f"behind {name}", self._load.revive)

    def _rest(self) -> None:
        """Wait until all replicas are in sync, or skip that, and pause."""
        self._is_calm = self._random.random() < 0.5 and self._settle()
        time.sleep(self._random.random() * CALM_MAX_S)

    def _guard(self, name: str, work: Callable[[], None]) -> None:
        """Do some work and note its errors; the campaign goes on after them."""
        try:
            work()
        except (AssertionError, BrokerFailedError, KafkaException) as error:
            self._note(f"{name}: {error!r}")
        for one in self._brokers:
            if not one.is_alive:
                self._note(f"behind {name} broker {one.directory.name} is gone: {one.log_tail()}")
                one.forget()
        self._faults.heal()

    def _check(self, check: Callable[[], list[str]]) -> None:
        for anomaly in check():
            self._note(anomaly)

    def _note(self, anomaly: str) -> None:
        self._log_line(f"ANOMALY: {anomaly}")
        self._anomalies.append(anomaly)

    def _log_line(self, event: str) -> None:
        """Print a line with the time in the format of the brokers' logs."""
        line = f"{datetime.now(UTC):%H:%M:%S.%f} {event}"
        print(line, flush=True)
        with self._log_path.open("a") as log:
            log.write(line + "\n")

    # Checks

    def _leaders(self) -> dict[int, int]:
        """The leaders by partition if all is well, otherwise none: the end of a leader says little about outages
        then."""
        with suppress(ClientError, trio.TooSlowError):
            if self._is_calm:
                _, _, partitions = metadata_of(self._brokers[0])[INPUT]
                return {number: leader for number, (leader, *_) in enumerate(partitions)}
        return {}

    def _settle(self) -> bool:
        """Whether every replica is in sync, as every broker tells."""
        begun_s = time.monotonic()
        while lacks := [lack for one in self._brokers for lack in lacks_of(one)]:
            if time.monotonic() - begun_s > SETTLED_WITHIN_S:
                self._note(f"not in sync again after {SETTLED_WITHIN_S:.0f} s: {lacks[:SHOWN]}")
                return False
            time.sleep(0.2)
        self._log_line(f"in sync after {time.monotonic() - begun_s:.1f} s")
        return True

    def _compare(self) -> None:
        for one in self._brokers:
            if (code := one.stop()) != 0:
                self._note(f"broker {one.directory.name} was asked to leave and left with {code}")
            if "Traceback" in one.log_path.read_text():
                self._note(f"broker {one.directory.name} met a bug: {one.log_path}")
        data_dirs = {number: disk.mount_point / "data" for number, disk in enumerate(self._faults.disks, 1)}
        for difference in differences(data_dirs):
            self._note(difference)

    def _outcome(self) -> CampaignResult:
        load = self._load
        copied = len(load.transformation.watcher.seen)
        outcome = CampaignResult(self._faults.counts, len(load.history.acked), copied, load.by_spark)
        outcome.sights, outcome.anomalies = len(load.sights), self._anomalies
        for name, number, at_s in self._lost_leaders:
            later = [one - at_s for one in load.of_partitions[number].acked_at_s if one - at_s > UNDER_WAY_S]
            outcome.outages_s.setdefault(name, []).append(min(later, default=math.inf))
        return outcome


def _chosen(kinds: list[FaultAction], names: frozenset[str]) -> list[FaultAction]:
    """The faults of these names; all faults if there are none."""
    unknown = names - {name_of(one) for one in kinds}
    assert not unknown, f"there are no blows of the names {sorted(unknown)}"
    return [one for one in kinds if not names or name_of(one) in names]


def has_go() -> bool:
    """Whether Go is there. Also builds franz-go's programs: the hosts of the campaign cannot reach the module proxy."""
    if shutil.which("go") is None:
        print("franz-go takes no part: it needs Go 1.23.8 or newer")
        return False
    go_program("stream")
    return True


def has_spark(seconds: float) -> bool:
    """Whether Spark takes part: its start alone takes longer than a short campaign."""
    if seconds < SPARK_FROM_S:
        print(f"Spark takes no part: it does in campaigns of {SPARK_FROM_S:.0f} s and more")
        return False
    need_pyspark()
    return True


def run(directory: Path, seed: int, settings: CampaignSettings) -> CampaignResult:
    """Inject faults for so long and then check the result. If there are anomalies, all files below `directory` stay,
    with the images of the disks."""
    random = Random(seed)
    takes_part = {"has_go": has_go(), "has_spark": has_spark(settings.seconds)}
    tier = directory / "tier"
    config = {**QUICK, **CONFIG, "tier.store": f"file://{tier}"} if settings.has_tier else CONFIG
    topic_config = {**REPLICATED, **IN_TIER} if settings.has_tier else REPLICATED
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        stack.enter_context(inside(network.hub))
        ensemble = stack.enter_context(zookeeper_ensemble(directory / "zookeeper", size=1, hosts=[network.add()]))
        hosts = [network.add() for _ in range(BROKERS)]
        cluster = KafkawireCluster(directory / "brokers", config, ensemble.connect, hosts=hosts)
        faults = DiskFaults(random, network, ensemble, cluster, SESSION_TIMEOUT_MS)
        for number, broker in cluster.brokers.items():
            disk = stack.enter_context(LoopImage(directory / "disks" / str(number), IMAGE_SIZE_MIB))
            broker.overrides["log.dirs"] = str(disk.mount_point / "data")
            faults.disks.append(disk)
        stack.enter_context(cluster)
        for topic in (INPUT, OUTPUT, SPARK_OUTPUT):
            Admin(cluster).create(NewTopic(topic, PARTITIONS, BROKERS, config=topic_config))
        load = Load(cluster, directory, **takes_part)
        stack.callback(load.kill)
        outcome = Campaign(directory, cluster, faults, load, random).run(settings)
        outcome.tiered = sum(1 for _ in tier.glob(f"*/*/*/{SEGMENT_OBJECTS}"))
        return outcome
