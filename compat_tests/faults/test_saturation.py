"""A cluster whose clients send as much as it takes: it recovers as soon as the trouble of one broker is over."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import create_topic, wait_until_whole
from compat_tests.faults.readers import Readers
from compat_tests.faults.saturation import RETENTION_BROKER_CONFIG, RETENTION_TOPIC_CONFIG, SaturatingProducers
from compat_tests.features.cluster.writer import Writer
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.requirements import need_zookeeper_jars

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.harness.kafkawire_broker import Kafkawire

TOPIC = "saturated"
READ_TOPIC, READ_PARTITIONS = "read", 3
CLIENTS = os.environ.get("KAFKAWIRE_CHAOS_READERS", "confluent").split(",")  # each with a group of its own
PARTITIONS = int(os.environ.get("KAFKAWIRE_CHAOS_PARTITIONS", "6"))
PRODUCERS = int(os.environ.get("KAFKAWIRE_CHAOS_PRODUCERS", "20"))
BOUND = os.environ.get("KAFKAWIRE_CHAOS_QUEUED_BYTES", str(8 * 1024 * 1024))  # reached within a second
FREEZE_S = float(os.environ.get("KAFKAWIRE_CHAOS_FREEZE_S", "5"))
WINDOW_S = float(os.environ.get("KAFKAWIRE_CHAOS_WINDOW_S", "6"))
STEADY_S = float(os.environ.get("KAFKAWIRE_CHAOS_STEADY_S", "10"))
RECOVERED_WITHIN_S = 30
LEAST_SHARE = float(os.environ.get("KAFKAWIRE_CHAOS_LEAST_SHARE", "0.5"))  # of the rate before; tests run beside others
MEMORY_MAX_MIB = 1024
LATENCY_MAX = float(os.environ.get("KAFKAWIRE_CHAOS_LATENCY_MAX", "8"))  # p99, in means; 3 on a quiet machine


def metric(broker: Kafkawire, name: str) -> float:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as reply:
        rows = [line.split() for line in reply.read().decode().splitlines() if line.startswith(f"{name} ")]
    return float(rows[0][1])


def memory_mib(broker: Kafkawire) -> int:
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))


def create(cluster: KafkawireCluster, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
    """Create a topic with three replicas, all in sync on return."""
    create_topic(cluster, topic, partitions, RETENTION_TOPIC_CONFIG, replicas=3)
    wait_until_whole(cluster, topic)


def freeze(broker: Kafkawire, seconds: float) -> None:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def isr_changes(cluster: KafkawireCluster) -> float:
    names = [f"kafka_server_replicamanager_isr{change}_total" for change in ("shrinks", "expands")]
    return sum(metric(one, name) for one in cluster.brokers.values() for name in names)


def test_saturating_load_changes_no_isr(tmp_path: Path) -> None:
    """Saturating load without faults, with default settings, changes no ISR, and no group loses a member. Only the
    retention is shorter than by default, because of the amount of data."""
    need_zookeeper_jars()
    with KafkawireCluster(tmp_path, {"min.insync.replicas": "2", **RETENTION_BROKER_CONFIG}) as cluster:
        create(cluster)
        create(cluster, READ_TOPIC, READ_PARTITIONS)
        changes_before = isr_changes(cluster)
        with (
            Readers(cluster, READ_TOPIC, READ_PARTITIONS, CLIENTS) as readers,
            Writer(cluster, READ_TOPIC),
            SaturatingProducers(cluster, TOPIC, PRODUCERS) as load,
        ):
            time.sleep(STEADY_S / 4)
            load.forget_latencies()
            rate = load.rate(STEADY_S)
            changes = isr_changes(cluster) - changes_before
            latencies, overall = load.latencies_s(), load.latency_s()
            complaints = readers.complaints()
        memory = [memory_mib(one) for one in cluster.brokers.values()]
        print(f"{rate:.0f} records/s, {changes:.0f} ISR changes, {memory} MiB")
        for name, latency in (*sorted(latencies.items()), ("all", overall)):
            print(f"partition {name}: {latency.mean:.2f} s mean, {latency.p99:.2f} s p99")
        assert complaints == []
        assert changes == 0
        assert load.errors == []
        assert all(one.p99 <= LATENCY_MAX * one.mean for one in (*latencies.values(), overall))
        assert max(memory) <= MEMORY_MAX_MIB


def test_the_produce_rate_recovers_after_a_broker_is_frozen_under_saturating_load(tmp_path: Path) -> None:
    need_zookeeper_jars()
    keys = {"queued.max.request.bytes": BOUND, "min.insync.replicas": "2", **RETENTION_BROKER_CONFIG}
    with KafkawireCluster(tmp_path, keys) as cluster:
        create(cluster)
        frozen = cluster.brokers[3]
        with SaturatingProducers(cluster, TOPIC, PRODUCERS) as load:
            time.sleep(WINDOW_S / 2)
            before = load.rate(WINDOW_S)
            assert before > 0
            freeze(frozen, FREEZE_S)
            begun_s = time.monotonic()
            while (after := load.rate(WINDOW_S)) < LEAST_SHARE * before:
                assert time.monotonic() < begun_s + RECOVERED_WITHIN_S, (before, after)
            recovered_s = time.monotonic() - begun_s
        wait_until_whole(cluster, TOPIC, "not all are in sync again")
        shrinks = sum(metric(one, "kafka_server_replicamanager_isrshrinks_total") for one in cluster.brokers.values())
        memory = [memory_mib(one) for one in cluster.brokers.values()]
        print(
            f"{before:.0f} records/s before, {after:.0f} after {recovered_s:.0f} s; "
            f"{shrinks:.0f} ISR shrinks; {memory} MiB"
        )
        assert load.errors == []
        assert max(memory) <= MEMORY_MAX_MIB
