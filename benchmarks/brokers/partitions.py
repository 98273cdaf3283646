"""Cost of 10,000 partitions on one broker: to make, to write, to hold open, to open again.

Opening is measured after an orderly stop, to the line that says "ready" and to the first acknowledged record. Creating
and writing use a warm JVM, writing to reopened partitions a cold one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, produce_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Contender, Options
    from kafkawire.client.load import Requests

TOPICS = 10
CONNECTIONS_PER_TOPIC = 5
ROUNDS = 4  # requests to each partition
CONTENDERS = ("kafkawire", "Kafka", "Kafka fsync")


def loads(topics: Sequence[str], partitions_each: int) -> list[Requests]:
    """Requests of 1 KiB to every partition in turn, each connection to its own part of a topic."""
    batch = batch_of(bench.KIB)
    share = partitions_each // CONNECTIONS_PER_TOPIC
    return [
        produce_requests(topic, range(first, first + share), batch, ROUNDS * share)
        for topic in topics
        for first in range(0, partitions_each, share)
    ]


def once(partitions_each: int, contender: Contender) -> report.Figures:
    """Create all partitions, write to all, stop, start, and write to all again."""
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
    return {
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


def compare(directory: Path, options: Options) -> report.Report:
    """Compare fresh brokers in every run: Apache Kafka takes minutes to close the files of deleted partitions."""
    partitions_each = 10 if options.toy else options.count(1_000, 10)
    runs: dict[str, list[report.Figures]] = {}
    for number in range(options.alternations):
        for name in CONTENDERS[:1] if options.toy else CONTENDERS:
            with bench.both(directory / f"{name}-{number}", with_kafka=not options.toy) as shipped:
                contender = next(each for each in bench.durabilities(shipped) if each.name == name)
                bench.warm([contender], options)  # these brokers are new: their JVM is cold
                runs.setdefault(name, []).append(once(partitions_each, contender))
    result = report.Result(f"{TOPICS * partitions_each} partitions", "req/s", runs)
    print(report.as_text(result), flush=True)
    return report.Report(machine.facts(), [result])


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("partitions", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
