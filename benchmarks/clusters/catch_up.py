"""How fast is a broker with a new disk in sync again?

One of three is killed, its disk emptied, and started. The time counts from the first file of the topic on its disk
until it is in sync: the time of a start is another question. The line that says "ready" is no measure, because Apache
Kafka's broker has fetched most by then. Both as shipped.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.clusters.replication import (
    IN_FLIGHT,
    IN_SYNC_TIMEOUT_S,
    PARTITIONS,
    as_shipped,
    clusters,
    is_in_sync,
    requests_to,
    warm,
)
from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB
from benchmarks.lib.load import run_load
from compat_tests.clients.confluent.clients import wait_until
from compat_tests.harness.log_files import size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.clusters.replication import Cluster
    from benchmarks.lib.bench import Options

BEGUN_BYTES = 1 << 20
LOOK_EVERY_S = 0.005


def catch_up(count: int, cluster: Cluster) -> report.Figures:
    with cluster.topic() as topic, ThreadPoolExecutor(1) as watching:
        sent_bytes = run_load(cluster.leader_port, requests_to(topic, 128 * KIB, count), IN_FLIGHT).sent_bytes
        lost = max(cluster.brokers.brokers)
        broker = cluster.brokers.brokers[lost]
        broker.kill()
        empty(broker)
        before_s = cluster.cpu_s()
        begun_s = watching.submit(begins, broker.data_dir, topic)
        broker.start()
        is_there = partial(is_in_sync, cluster.leader_port, topic, PARTITIONS)
        wait_until(is_there, f"broker {lost} is not in sync", IN_SYNC_TIMEOUT_S)
        seconds = time.perf_counter() - begun_s.result()
        cpu_s = cluster.cpu_s() - before_s
        return {"MB/s": sent_bytes / 1e6 / seconds, "CPU s/GB": cpu_s / (sent_bytes / 1e9)}


def empty(broker: Any) -> None:
    """Replace the broker's disk by an empty one."""
    shutil.rmtree(broker.data_dir)
    broker.prepare()


def begins(data_dir: Path, topic: str) -> float:
    """Wait until the topic has `BEGUN_BYTES` on the disk. Returns the time then."""
    deadline_s = time.perf_counter() + IN_SYNC_TIMEOUT_S
    while size_bytes(data_dir.glob(f"{topic}-*/*.log")) < BEGUN_BYTES:
        assert time.perf_counter() < deadline_s, f"nothing of {topic} is in {data_dir}"
        time.sleep(LOOK_EVERY_S)
    return time.perf_counter()


def compare(directory: Path, options: Options) -> report.Report:
    with clusters(directory, with_kafka=not options.toy) as field:
        warm(field, options)
        count = options.count(4_000, 40)
        case = f"{count * 128 // 1024:,} MiB to a new disk"
        found = bench.alternate(case, "MB/s", as_shipped(field), partial(catch_up, count), options)
        return report.Report(machine.facts(), [found])


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("catch-up", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
