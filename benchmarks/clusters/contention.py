"""Conflicts and waits in a cluster: changes of the metadata that others overtake, work that waits for checkpoints.

Kafka's counterparts are inside its controller and its log cleaner: no comparison. Each case has three brokers of its
own.

- Topics: clients at all three brokers create 1,000 partitions at once. How many changes are overtaken by another one?
- Restart: a broker with 1,000 partitions is killed and comes back, while topics are created.
- Copy: a follower without files copies compacted topics. How many checkpoints does it write, and how long does other
  work wait?
"""

from __future__ import annotations

import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import NewTopic

from benchmarks.lib import bench, machine, report
from benchmarks.lib.watched import notes_of, watch
from compat_tests.clients.confluent.clients import Admin, create_topic, producer, wait_until, wait_until_whole
from compat_tests.harness.cluster import KafkawireCluster
from compat_tests.harness.log_files import size_bytes
from kafkawire.client.load import percentile_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from compat_tests.harness.kafkawire_broker import Kafkawire

PARTITIONS, PARTITIONS_EACH = 1_000, 25
TIMEOUT_S = 300.0
RESTARTED = 3
COPIED_PARTITIONS = 8
RECORDS, VALUE = 100_000, b"v" * 500  # of each partition; each key twice
QUICK_CLEANER = {"log.initial.task.delay.ms": "1000", "log.cleaner.backoff.ms": "500"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


@contextmanager
def three(directory: Path) -> Iterator[KafkawireCluster]:
    cluster = KafkawireCluster(directory, QUICK_CLEANER)
    for one in cluster.brokers.values():
        watch(one, "contention_broker")
    with cluster:
        yield cluster


def create_topics(cluster: KafkawireCluster, prefix: str, partitions: int) -> list[str]:
    """Create topics, by clients at all three brokers at once."""
    names = [f"{prefix}-{number}" for number in range(max(3, partitions // PARTITIONS_EACH))]
    each = max(1, partitions // len(names))

    def create(number: int, broker: Kafkawire) -> None:
        admin = Admin(broker, TIMEOUT_S)
        for name in names[number::3]:
            admin.create(NewTopic(name, each, 3))

    with ThreadPoolExecutor(3) as pool:
        for created in [pool.submit(create, *one) for one in enumerate(cluster.brokers.values())]:
            created.result()
    for name in names:
        wait_until_whole(cluster, name, timeout_s=TIMEOUT_S)
    return names


def of_changes(cluster: KafkawireCluster) -> report.Figures:
    """The changes of the metadata by all brokers, which have been stopped."""
    notes = [notes_of(one) for one in cluster.brokers.values()]
    taken_s = sorted(chain.from_iterable(one["changes_s"] for one in notes))
    overtaken = sum(one["overtaken"] for one in notes)
    return {
        "changes": len(taken_s),
        "overtaken": overtaken,
        "overtaken %": 100 * overtaken / max(1, overtaken + len(taken_s)),
        "change p50 ms": percentile_ms(taken_s, 0.50),
        "change p99 ms": percentile_ms(taken_s, 0.99),
    }


def of_checkpoints(notes: dict[str, Any]) -> report.Figures:
    """The checkpoints of one broker."""
    taken_s, longest_s = sorted(notes["checkpoints_s"]), 0.0
    for kind, waits_s in sorted(notes["waits_s"].items()):
        longest_s = max(longest_s, *waits_s)
        print(
            f"{kind} wanted the lock {len(waits_s)} times, and waited {1000 * max(waits_s):.1f} ms at most", flush=True
        )
    return {
        "checkpoints": len(taken_s),
        "checkpoint p50 ms": percentile_ms(taken_s, 0.50),
        "checkpoint max ms": 1000 * taken_s[-1],
        "longest wait ms": 1000 * longest_s,
    }


def topics(options: Options, directory: Path) -> report.Figures:
    with three(directory) as cluster:
        begun_s = time.monotonic()
        create_topics(cluster, "created", options.count(PARTITIONS, 6))
        seconds = time.monotonic() - begun_s
    return {"seconds": seconds, **of_changes(cluster)}


def restart(options: Options, directory: Path) -> report.Figures:
    """Measure a restart. The notes of the restarted broker are of its second process."""
    with three(directory) as cluster:
        names = create_topics(cluster, "replicated", options.count(PARTITIONS, 6))
        restarted = cluster.brokers[RESTARTED]
        begun_s = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            restarted.kill()
            wait_until(lambda: Admin(cluster.brokers[1]).isr_sizes(names[-1]) == {2}, "it is in sync", TIMEOUT_S)
            restarted.start()
            created = pool.submit(create_topics, cluster, "meanwhile", options.count(PARTITIONS // 4, 3))
            for name in names:
                wait_until_whole(cluster, name, timeout_s=TIMEOUT_S)
            created.result()
        seconds = time.monotonic() - begun_s
    return {"seconds": seconds, **of_changes(cluster)}


def write_compacted(cluster: KafkawireCluster, topic: str, records: int) -> None:
    client = producer(cluster, linger_ms=20)
    chosen = random.Random(1)
    for partition in range(COPIED_PARTITIONS):
        keys = [*range(records // 2)] * 2
        chosen.shuffle(keys)
        for key in keys:
            while True:
                try:
                    client.produce(topic, VALUE, key=b"%d" % key, partition=partition)
                except BufferError:
                    client.poll(0.1)
                else:
                    break
            client.poll(0)
    client.flush(TIMEOUT_S)


def size_of(broker: Kafkawire, topic: str) -> int:
    """The size of the topic's segments on a broker, in bytes."""
    return size_bytes(broker.data_dir.glob(f"{topic}-*/*.log"))


def wait_until_compacted(cluster: KafkawireCluster, topic: str, written_bytes: int, quiet_s: float) -> None:
    brokers = [*cluster.brokers.values()]
    sizes, since_s = [0], time.monotonic()
    while time.monotonic() < since_s + quiet_s:
        time.sleep(0.5)
        found = [size_of(one, topic) for one in brokers]
        if found != sizes or max(found) > 0.8 * written_bytes:
            sizes, since_s = found, time.monotonic()


def copy(options: Options, directory: Path) -> report.Figures:
    topic, records = "compacted", options.count(RECORDS, 40)
    with three(directory) as cluster:
        create_topic(cluster, topic, COPIED_PARTITIONS, COMPACTED, replicas=3)
        write_compacted(cluster, topic, records)
        if not options.toy:  # so few records are in one segment, which is not compacted
            wait_until_compacted(cluster, topic, COPIED_PARTITIONS * records * len(VALUE), 15)
        copier = cluster.brokers[RESTARTED]
        copier.kill()
        shutil.rmtree(copier.data_dir)
        others = [one for one in cluster.brokers.values() if one is not copier]
        wait_until(lambda: Admin(others[0]).isr_sizes(topic) == {2}, "the killed one is in sync", TIMEOUT_S)
        begun_s = time.monotonic()
        copier.start()
        wait_until_whole(cluster, topic, timeout_s=TIMEOUT_S)
        seconds, copied = time.monotonic() - begun_s, size_of(copier, topic)
    return {"seconds": seconds, "MB": copied / 1e6, **of_checkpoints(notes_of(copier))}


def compare(directory: Path, options: Options) -> report.Report:
    cases: dict[str, tuple[Callable[[Options, Path], report.Figures], str]] = {
        f"{PARTITIONS:,} partitions are created at three brokers at once": (topics, "overtaken"),
        f"one of three brokers restarts with {PARTITIONS:,} partitions while topics are created": (
            restart,
            "overtaken",
        ),
        "a follower without files copies compacted partitions": (copy, "checkpoints"),
    }
    results = []
    for number, (case, (once, compared)) in enumerate(cases.items()):
        runs = [once(options, directory / f"{number}-{again}") for again in range(options.alternations)]
        results.append(report.Result(case, compared, {"kafkawire": runs}))
        print(report.as_text(results[-1]), flush=True)
    return report.Report(machine.facts(), results, {})


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("contention", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
