"""Cost of three brokers that replicate, and latency of a record that goes to all of them.

Each record goes to all three, acks=all, as the brokers are shipped: kafkawire syncs it on each before the
acknowledgement, Apache Kafka does not. And each with the other durability: kafkawire with flush.policy=async, Apache
Kafka with flush.messages=1. All of them, and the client, share this machine's cores: so these figures do not say how
the load grows with brokers, and where it ends. ZooKeeper's CPU is not counted: it gets no requests here. With a
checkout of an earlier version in KAFKAWIRE_EARLIER, three brokers of that version take part.

- Load: CPU of the three brokers for each GB that was sent to one of them, in large and in small requests.
- Pace: 200 requests a second, which is less than each of them can do: how long does one of them take?
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import NewTopic

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KAFKA_OVERRIDES, KIB, MAKE_TIMEOUT_S
from benchmarks.lib.load import run_load
from benchmarks.lib.paced_load import run_paced
from benchmarks.lib.wire_requests import batch_of, produce_requests
from compat_tests.clients.confluent.clients import Admin, wait_until
from compat_tests.harness import whereabouts
from compat_tests.harness.apache_kafka import ApacheKafkaCluster
from compat_tests.harness.cluster import KafkawireCluster
from kafkawire.client.load import percentile_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from compat_tests.harness.several import SeveralBrokers
    from kafkawire.client.load import Requests

LEADER, PARTITIONS, IN_FLIGHT = 1, 4, 5
WARM_SIZE_BYTES = 1 << 30
PER_S = 200.0
IN_SYNC_TIMEOUT_S = 300.0
EARLIER = "KAFKAWIRE_EARLIER"
START = "import sys; from kafkawire.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Cluster:
    """Three brokers, and the configuration of the topics that they are measured with."""

    name: str
    brokers: SeveralBrokers[Any]
    config: Mapping[str, str]

    @property
    def leader_port(self) -> int:
        return int(self.brokers.brokers[LEADER].port)

    def cpu_s(self) -> float:
        """CPU seconds of all brokers that run."""
        return sum(machine.cpu_s(one.pid) for one in self.brokers.brokers.values() if one.is_alive)

    @contextmanager
    def topic(self, partitions: int = PARTITIONS) -> Iterator[str]:
        """A topic whose partitions are all led by one broker from the start on, and followed by both others."""
        admin = Admin(self.brokers, MAKE_TIMEOUT_S)
        name = f"load-{time.monotonic_ns()}"
        others = [one for one in self.brokers.brokers if one != LEADER]
        placed = [[LEADER, *others]] * partitions
        admin.create(NewTopic(name, num_partitions=partitions, replica_assignment=placed, config=dict(self.config)))
        bench.wait_until_led_at(self.leader_port, name, range(partitions))
        yield name
        admin.delete(name)


def is_in_sync(port: int, topic: str, partitions: int) -> bool:
    """Whether all partitions have a leader and three replicas in sync."""
    states = whereabouts.partitions(port, topic)
    return len(states) == partitions and all(one.leader >= 0 and len(one.in_sync) == 3 for one in states.values())


def requests_to(topic: str, size_bytes: int, count: int) -> list[Requests]:
    """So many requests, of a batch of that size each, over all partitions."""
    batch = batch_of(size_bytes)
    return [produce_requests(topic, [one], batch, count // PARTITIONS) for one in range(PARTITIONS)]


def load(size_bytes: int, count: int, cluster: Cluster) -> report.Figures:
    with cluster.topic() as topic:
        each = requests_to(topic, size_bytes, count)
        machine.back_memory(2 * 3 * sum(one.size_bytes for one in each))
        before_s = cluster.cpu_s()
        measured = run_load(cluster.leader_port, each, IN_FLIGHT)
        wait_until(
            lambda: is_in_sync(cluster.leader_port, topic, PARTITIONS), "replicas are missing", IN_SYNC_TIMEOUT_S
        )
        cpu_s = cluster.cpu_s() - before_s
        return {
            "MB/s": measured.sent_bytes / 1e6 / measured.seconds,
            "p50 ms": measured.percentile_ms(0.50),
            "p99 ms": measured.percentile_ms(0.99),
            "CPU s/GB": cpu_s / (measured.sent_bytes / 1e9),
        }


def pace(count: int, cluster: Cluster) -> report.Figures:
    with cluster.topic() as topic:
        each = requests_to(topic, KIB, count)
        before_s = cluster.cpu_s()
        taken_s = sorted(run_paced(cluster.leader_port, each, PER_S))
        cpu_s = cluster.cpu_s() - before_s
        p50, p99 = percentile_ms(taken_s, 0.50), percentile_ms(taken_s, 0.99)
        return {"p50 ms": p50, "p99 ms": p99, "CPU ms/request": cpu_s * 1000 / count}


def earlier_cluster(directory: Path) -> KafkawireCluster | None:
    """A cluster of an earlier version, to be compared with today's; None unless `EARLIER` has a checkout of one."""
    checkout = os.environ.get(EARLIER)
    if checkout is None:
        return None
    cluster = KafkawireCluster(directory / "earlier")
    for one in cluster.brokers.values():
        one.program = ("env", f"PYTHONPATH={checkout}", sys.executable, "-c", START)
    return cluster


@contextmanager
def clusters(directory: Path, *, with_kafka: bool) -> Iterator[list[Cluster]]:
    with ExitStack() as stack:
        ours = stack.enter_context(KafkawireCluster(directory / "kafkawire"))
        found = [Cluster("kafkawire", ours, {}), Cluster("kafkawire async", ours, {"flush.policy": "async"})]
        if (earlier := earlier_cluster(directory)) is not None:
            found.append(Cluster("earlier", stack.enter_context(earlier), {}))
        if with_kafka:
            theirs = stack.enter_context(
                ApacheKafkaCluster(directory / "kafka", KAFKA_OVERRIDES, jvm=bench.CLUSTER_JVM)
            )
            found += [Cluster("Kafka", theirs, {}), Cluster("Kafka fsync", theirs, {"flush.messages": "1"})]
        yield found


def as_shipped(field: Sequence[Cluster]) -> list[Cluster]:
    return [one for one in field if not one.config]


def warm(field: Sequence[Cluster], options: Options) -> None:
    """See `bench.warm`; all three of a cluster take part in it."""
    for cluster in [] if options.toy else as_shipped(field):
        print(f"warming {cluster.name}", flush=True)
        load(128 * KIB, WARM_SIZE_BYTES // (128 * KIB), cluster)
        load(KIB, 20_000, cluster)


def compare(directory: Path, options: Options) -> report.Report:
    with clusters(directory, with_kafka=not options.toy) as field:
        warm(field, options)
        large, small = options.count(4_000, 8), options.count(40_000, 40)
        paced = options.count(4_000, 40)
        results = [
            bench.alternate(
                f"{large:,} x 128 KiB, acks=all", "CPU s/GB", field, partial(load, 128 * KIB, large), options
            ),
            bench.alternate(f"{small:,} x 1 KiB, acks=all", "CPU s/GB", field, partial(load, KIB, small), options),
            bench.alternate("200 x 1 KiB a second, acks=all", "p99 ms", field, partial(pace, paced), options),
        ]
        peaks = {
            f"{each.name} {number}": machine.rss_peak_mib(one.pid)
            for each in as_shipped(field)
            for number, one in each.brokers.brokers.items()
        }
        return report.Report(machine.facts(), results, peaks)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("replication", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
