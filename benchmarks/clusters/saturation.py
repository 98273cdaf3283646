"""Latency of three brokers whose producers always have more to send.

Each producer sends records of 16 KiB with acks=all to all partitions of a topic with three replicas, and has at most
4 MiB in its queue. So the mean latency is the bytes in flight divided by the throughput (Little's law), and what
differs is the tail. Only one cluster runs at a time. The brokers are as they are shipped, except for the retention,
because the load would fill a disk within minutes: kafkawire syncs each record before the acknowledgement, Apache Kafka
does not. The brokers and the producers share this machine's cores.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.lib import bench, machine, report
from compat_tests.clients.confluent.clients import create_topic, wait_until_whole
from compat_tests.faults.saturation import RETENTION_BROKER_CONFIG, RETENTION_TOPIC_CONFIG, SaturatingProducers
from compat_tests.harness.apache_kafka import ApacheKafkaCluster
from compat_tests.harness.cluster import KafkawireCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from compat_tests.harness.several import SeveralBrokers

TOPIC, PARTITIONS = "saturated", 12
PRODUCERS = (32, 80)
BROKER_CONFIG = {"min.insync.replicas": "2", **RETENTION_BROKER_CONFIG}
WARM_S, MEASURED_S = 20, 60


@dataclass(frozen=True)
class Contender:
    """A kind of cluster, which is started anew for each run."""

    name: str
    new_cluster: Callable[[Path], SeveralBrokers[Any]]


def kafkawire(directory: Path) -> SeveralBrokers[Any]:
    return KafkawireCluster(directory, BROKER_CONFIG)


def kafka(directory: Path) -> SeveralBrokers[Any]:
    return ApacheKafkaCluster(directory, BROKER_CONFIG, jvm=bench.CLUSTER_JVM)


def once(directory: Path, producers: int, options: Options, contender: Contender) -> report.Figures:
    """Figures of one run of a cluster."""
    place = directory / contender.name
    with contender.new_cluster(place) as cluster:
        create_topic(cluster, TOPIC, PARTITIONS, RETENTION_TOPIC_CONFIG, replicas=3)
        wait_until_whole(cluster, TOPIC)
        with SaturatingProducers(cluster, TOPIC, producers) as load:
            time.sleep(options.count(WARM_S, 1))
            load.forget_latencies()
            before, begun_s = load.acknowledged, time.monotonic()
            time.sleep(options.count(MEASURED_S, 2))
            rate = (load.acknowledged - before) / (time.monotonic() - begun_s)
            latency, partitions = load.latency_s(), load.latencies_s()
    shutil.rmtree(place)
    if load.errors:
        raise RuntimeError(f"{len(load.errors)} records were refused, the first with {load.errors[0]}")
    return {
        "records/s": rate,
        "mean s": latency.mean,
        "p99 s": latency.p99,
        "p99 in means": latency.p99 / latency.mean,
        "p99 in means of a partition": statistics.median(one.p99 / one.mean for one in partitions.values()),
    }


def compare(directory: Path, options: Options) -> report.Report:
    field = [Contender("kafkawire", kafkawire)]
    if not options.toy:
        field.append(Contender("Kafka", kafka))
    results = [
        bench.alternate(f"{producers} producers", "p99 s", field, partial(once, directory, producers, options), options)
        for producers in ((2,) if options.toy else PRODUCERS)
    ]
    return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("saturation", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
