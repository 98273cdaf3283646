"""How long are three brokers without a leader after a kill?

The leader of a partition dies (kill -9); how long does it take until another broker acknowledges the next record,
acks=all? And if the coordinator of a group dies, how long until another one answers with the group's offsets? kafkawire
brokers find by probes that a broker is gone; Apache Kafka waits for the session of nine seconds. Each broker comes back
and is in sync before the next one is killed. Both as shipped: syncs matter little here.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from benchmarks.clusters.replication import IN_SYNC_TIMEOUT_S, as_shipped, clusters, is_in_sync, warm
from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB
from benchmarks.lib.wire_requests import batch_of, produce_requests
from compat_tests.clients.confluent.clients import new_consumer, wait_until
from compat_tests.harness import whereabouts
from compat_tests.harness.kio_codec import decode_response, encode_request
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed, percentile_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.clusters.replication import Cluster
    from benchmarks.lib.bench import Options

KILLS = 35  # each time; of Apache Kafka, whose figure is the length of its session, fewer
KILLS_OF_KAFKA = 12
GROUP = "readers"
OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50
OFFSET_FETCH_VERSION = 7  # the first with require_stable
ATTEMPT_TIMEOUT_S = 2.0  # of a request to a possible leader
LOOK_EVERY_S = 0.01


def failovers(counts: Mapping[str, int], cluster: Cluster) -> report.Figures:
    """Kill the leader, as often as `counts` says for that cluster."""
    with cluster.topic(1) as topic:

        def leader() -> int:
            return cluster.brokers.leader_id(topic)

        return kills(cluster, counts[cluster.name], leader, partial(acknowledge, topic=topic), {topic: 1})


def coordinator_failovers(counts: Mapping[str, int], cluster: Cluster) -> report.Figures:
    """Kill the coordinator of a group, as often as `counts` says for that cluster."""
    with cluster.topic(1) as topic:
        commit(cluster, topic)

        def coordinator() -> int:
            return whereabouts.coordinator_id(cluster.leader_port, GROUP, whereabouts.GROUP)

        partitions = {topic: 1, OFFSETS_TOPIC: OFFSETS_PARTITIONS}
        return kills(
            cluster, counts[cluster.name], coordinator, partial(read_committed_offset, topic=topic), partitions
        )


def kills(
    cluster: Cluster,
    count: int,
    victim_id: Callable[[], int],
    attempt: Callable[[int], None],
    partitions: Mapping[str, int],
) -> report.Figures:
    """Seconds that `attempt`, which asks the broker at a port, fails after each kill. In between, all replicas of these
    topics get in sync again."""
    brokers = cluster.brokers.brokers
    without_s = []
    for _ in range(count):
        victim = brokers[victim_id()]
        others = [one.port for one in brokers.values() if one is not victim]
        until_done(attempt, others)
        victim.kill()
        begun_s = time.perf_counter()
        until_done(attempt, others)
        without_s.append(time.perf_counter() - begun_s)
        victim.start()
        for topic, number in partitions.items():
            wait_until(partial(is_in_sync, others[0], topic, number), f"{topic} lacks a replica", IN_SYNC_TIMEOUT_S)
    p50, p99 = (percentile_ms(sorted(without_s), fraction) for fraction in (0.50, 0.99))
    return {"p50 ms": p50, "p99 ms": p99, "max ms": 1000 * max(without_s)}


def commit(cluster: Cluster, topic: str) -> None:
    consumer = new_consumer(cluster.brokers, group_id=GROUP)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()


def read_committed_offset(port: int, topic: str) -> None:
    """Ask the coordinator that the broker at `port` names for the group's offsets. Raises OSError, LoadFailed."""
    found = whereabouts.coordinator(port, GROUP, whereabouts.GROUP)
    if found["error_code"]:
        raise LoadFailed("there is no coordinator")
    fields = {"group_id": GROUP, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": True}
    with WireConnection(found["port"], timeout_s=ATTEMPT_TIMEOUT_S) as connection:
        connection.send_frame(encode_request("offset_fetch", OFFSET_FETCH_VERSION, fields))
        reply = connection.receive_frame()
    if reply is None:
        raise LoadFailed("the broker closed the connection")
    answer = decode_response("offset_fetch", OFFSET_FETCH_VERSION, reply)
    rows = [row for topic_row in answer["topics"] for row in topic_row["partitions"]]
    if answer["error_code"] or [row["committed_offset"] for row in rows] != [1]:
        raise LoadFailed("the offset is not told")


def acknowledge(port: int, topic: str) -> None:
    """Produce a record to the leader that the broker at `port` names. Raises OSError, LoadFailed."""
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


def until_done(attempt: Callable[[int], None], ports: Sequence[int]) -> None:
    """Try each port again and again until one attempt succeeds, as a client does after retriable errors."""
    deadline_s = time.perf_counter() + IN_SYNC_TIMEOUT_S
    while True:
        for port in ports:
            try:
                attempt(port)
            except (OSError, LoadFailed, KeyError):
                assert time.perf_counter() < deadline_s, "no broker does it any more"
            else:
                return
        time.sleep(LOOK_EVERY_S)


def compare(directory: Path, options: Options) -> report.Report:
    with clusters(directory, with_kafka=not options.toy) as field:
        warm(field, options)
        ours = options.count(KILLS, 1)
        counts = {"kafkawire": ours, "earlier": ours, "Kafka": options.count(KILLS_OF_KAFKA, 1)}
        shipped = as_shipped(field)
        killed = ", ".join(f"{counts[one.name]} of {one.name}" for one in shipped)
        results = [
            bench.alternate(
                f"{killed_ones} killed each time: {killed}", "p50 ms", shipped, partial(each, counts), options
            )
            for killed_ones, each in (("leaders", failovers), ("coordinators", coordinator_failovers))
        ]
        return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("failover", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
