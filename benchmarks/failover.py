"""How long are three brokers without a leader that was killed?

The leader of a partition dies (kill -9); how long does it take until somebody acknowledges the next record, acks=all?
Ours find by probes that nobody is there; Apache Kafka waits for the session of nine seconds. Each broker comes back and
is in sync before the next one is killed. Both as shipped: what is synced matters little here.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import bench, machine, report
from benchmarks.bench import KIB
from benchmarks.replication import IN_SYNC_TIMEOUT_S, as_shipped, clusters, is_whole, warm
from benchmarks.wire_requests import batch_of, produce_requests
from compat_tests.confluent.clients import wait_until
from compat_tests.harness import whereabouts
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed, percentile_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.bench import Options
    from benchmarks.replication import Cluster

KILLS = 35  # each time; of Apache Kafka, whose figure is the length of its session, fewer
KILLS_OF_KAFKA = 12
ATTEMPT_TIMEOUT_S = 2.0  # of one that looks for a leader
LOOK_EVERY_S = 0.01


def failovers(counts: Mapping[str, int], cluster: Cluster) -> report.Figures:
    """Whoever leads is killed, as often as `counts` says of that cluster."""
    with cluster.topic(1) as topic:
        without_s = []
        for _ in range(counts[cluster.name]):
            leader = cluster.brokers.leader_of(topic)
            others = [one.port for one in cluster.brokers.brokers.values() if one is not leader]
            until_acknowledged(others, topic)
            leader.kill()
            begun_s = time.perf_counter()
            until_acknowledged(others, topic)
            without_s.append(time.perf_counter() - begun_s)
            leader.start()
            wait_until(partial(is_whole, others[0], topic, 1), f"{topic} lacks a replica", IN_SYNC_TIMEOUT_S)
        p50, p99 = (percentile_ms(sorted(without_s), fraction) for fraction in (0.50, 0.99))
        return {"p50 ms": p50, "p99 ms": p99, "max ms": 1000 * max(without_s)}


def acknowledge(port: int, topic: str) -> None:
    """By whoever leads, as the broker at `port` knows. Raises OSError, LoadFailed."""
    leader = whereabouts.partitions(port, topic)[0]
    if not leader.port:
        raise LoadFailed("nobody leads")
    request = produce_requests(topic, [0], batch_of(KIB), 1)
    with WireConnection(leader.port, timeout_s=ATTEMPT_TIMEOUT_S) as connection:
        connection.send_bytes(bytes(request.prepare(0)))
        answer = connection.receive_frame()
    if answer is None:
        raise LoadFailed("the broker closed the connection")
    request.check(answer)


def until_acknowledged(ports: Sequence[int], topic: str) -> None:
    """As a client does that is told to ask again."""
    deadline_s = time.perf_counter() + IN_SYNC_TIMEOUT_S
    while True:
        for port in ports:
            try:
                acknowledge(port, topic)
            except (OSError, LoadFailed, KeyError):
                assert time.perf_counter() < deadline_s, "nobody leads any more"
            else:
                return
        time.sleep(LOOK_EVERY_S)


def compare(directory: Path, options: Options) -> report.Report:
    with clusters(directory, with_kafka=not options.toy) as field:
        warm(field, options)
        counts = {"kafkawire": options.count(KILLS, 1), "Kafka": options.count(KILLS_OF_KAFKA, 1)}
        case = f"leaders killed each time: {', '.join(f'{count} of {name}' for name, count in counts.items())}"
        found = bench.alternate(case, "p50 ms", as_shipped(field), partial(failovers, counts), options)
        return report.Report(machine.facts(), [found])


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("failover", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
