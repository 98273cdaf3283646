"""What do 10,000 partitions on one broker cost: to make, to write, to hold open, to open again?

Opening is measured after an orderly stop, to the line that says "ready" and to the first acknowledged record.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import bench, machine, report
from benchmarks.load import run_load
from benchmarks.wire_requests import batch_of, produce_requests
from compat_tests.confluent.clients import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.bench import Contender, Options
    from benchmarks.load import Requests

TOPICS = 10
CONNECTIONS_PER_TOPIC = 5
ROUNDS = 4  # requests to each partition
DESCRIPTORS_OF_NONE = 1_000  # a broker with hardly any partition has fewer


def loads(topics: Sequence[str], partitions_each: int) -> list[Requests]:
    """1 KiB to every partition in turn, each connection to its own part of a topic."""
    batch = batch_of(bench.KIB)
    share = partitions_each // CONNECTIONS_PER_TOPIC
    return [
        produce_requests(topic, range(first, first + share), batch, ROUNDS * share)
        for topic in topics
        for first in range(0, partitions_each, share)
    ]


def once(partitions_each: int, contender: Contender) -> report.Figures:
    """Makes them all, writes to all, stops, starts, writes to all again, deletes them."""
    broker = contender.broker
    begun_s = time.perf_counter()
    topics = [bench.new_topic(contender, partitions_each) for _ in range(TOPICS)]
    made_s = time.perf_counter() - begun_s
    produced = bench.measure(contender, loads(topics, partitions_each), 1)
    broker.stop(timeout_s=bench.MAKE_TIMEOUT_S)  # Apache Kafka needs more than the tests' 40 s
    begun_s = time.perf_counter()
    broker.start(timeout_s=bench.MAKE_TIMEOUT_S)
    ready_s = time.perf_counter() - begun_s
    bench.wait_until_led(contender, topics[-1], [partitions_each - 1])
    run_load(broker.port, [produce_requests(topics[-1], [partitions_each - 1], batch_of(bench.KIB), 1)], 1)
    acked_s = time.perf_counter() - begun_s
    for topic in topics:
        bench.wait_until_led(contender, topic, range(partitions_each))
    again = bench.measure(contender, loads(topics, partitions_each), 1)
    figures = {
        "create s": made_s,
        "req/s": produced["req/s"],
        "p99 ms": produced["p99 ms"],
        "CPU s": produced["CPU s"],
        "open s": ready_s,
        "first ack s": acked_s,
        "req/s reopened": again["req/s"],
        "RSS MiB": machine.rss_mib(broker.pid),
        "descriptors": machine.descriptors(broker.pid),
    }
    for topic in topics:
        bench.delete_topic(contender, topic)
    wait_until_closed(broker.pid)
    return figures


def wait_until_closed(pid: int) -> None:
    """Apache Kafka keeps the files of deleted partitions open for a while: the next as many have to fit as well."""
    wait_until(
        lambda: machine.descriptors(pid) < DESCRIPTORS_OF_NONE, "files of deleted topics are open", bench.MAKE_TIMEOUT_S
    )


def compare(directory: Path, options: Options) -> report.Report:
    partitions_each = 10 if options.toy else options.count(1_000, 10)
    count = TOPICS * partitions_each
    with bench.both(directory, with_kafka=not options.toy) as shipped:
        bench.warm(shipped, replace(options, scale=options.scale / 10))  # a restart makes the JVM cold again
        field = [each for each in bench.durabilities(shipped) if each.name in ("kafkawire", "Kafka", "Kafka fsync")]
        case = f"{count} partitions"
        result = bench.alternate(case, "req/s", field, partial(once, partitions_each), options)
        return report.Report(machine.facts(), [result], bench.rss_peaks(shipped))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("partitions", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
