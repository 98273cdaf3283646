"""How do throughput and p99 grow with the size of records, the number of partitions and that of connections?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, MIB
from benchmarks.lib.wire_requests import batch_of, produce_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Contender, Options


@dataclass(frozen=True)
class Point:
    """A load of a series: 5 requests in flight in all, or one per connection where there are more."""

    name: str
    request_size_bytes: int
    record_size_bytes: int
    connections: int
    partitions: int
    requests: int


RECORD_SIZES = (10, 100, KIB, 10 * KIB, 100 * KIB, MIB)
# No more partitions: Apache Kafka's controller refuses them in one request (10,000 records), and its two contenders
# share a limit of descriptors.
SERIES = (
    *(
        Point(f"records of {size:,} B", max(64 * KIB, size), size, 1, 1, 200 if size == MIB else 2_000)
        for size in RECORD_SIZES
    ),
    *(Point(f"{count:,} partitions", KIB, KIB, min(count, 50), count, 20_000) for count in (1, 10, 100, 1_000, 5_000)),
    *(Point(f"{count:,} connections", KIB, KIB, count, count, 20_000) for count in (1, 5, 50, 200, 500)),
)
TOY_PARTITIONS_MAX = 10


def once(point: Point, options: Options, topics: dict[str, str], contender: Contender) -> report.Figures:
    """Run a load in which each connection writes to partitions of its own in turn."""
    topic = topics[contender.name]
    batch = batch_of(point.request_size_bytes, point.record_size_bytes)
    share = point.partitions // point.connections
    each = max(1, options.count(point.requests, point.connections) // point.connections)
    requests = [
        produce_requests(topic, range(first, first + share), batch, each)
        for first in range(0, share * point.connections, share)
    ]
    return bench.measure(contender, requests, max(1, 5 // point.connections))


def alternate(point: Point, options: Options, field: Sequence[Contender]) -> report.Result:
    """Measure one load of a series with all contenders."""
    with bench.a_topic_each(field, point.partitions, max_message_bytes=str(2 * MIB)) as topics:
        return bench.alternate(point.name, "req/s", field, partial(once, point, options, topics), options)


def compare(directory: Path, options: Options) -> report.Report:
    points = [point for point in SERIES if not options.toy or point.partitions <= TOY_PARTITIONS_MAX]
    with bench.both(directory, with_kafka=not options.toy) as shipped:
        field = bench.durabilities(shipped)
        bench.warm(field, options)
        results = [alternate(point, options, field) for point in points]
        return report.Report(machine.facts(), results, bench.rss_peaks(shipped))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("growth", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
