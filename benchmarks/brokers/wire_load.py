"""How fast are the brokers themselves? Pre-encoded requests, the same bytes to kafkawire and to Apache Kafka.

Each contender is a broker and a topic configuration, so that every durability is measured. Unless told otherwise,
kafkawire syncs before it acknowledges, with acks=1 as with acks=all; Apache Kafka does not. Requests have acks=all
where nothing else is said. A client as users have it: benchmarks.brokers.stock_client.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, MIB, Contender, Options
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, end_offsets, fetch_requests, produce_requests
from kafkawire.client.load import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A case: so many requests of a size, over so many connections, with so many in flight on each."""

    name: str
    request_size_bytes: int
    connections: int
    in_flight: int
    requests: int
    partitions_each: int = 1  # of a connection, which writes them in turn
    fetch: bool = False  # read the data back instead, 1 MiB a time
    only_synced: bool = False
    acks: int = -1


CASES = (
    Case("produce 128 KiB, 1 connection x 5", 128 * KIB, 1, 5, 4_000),
    Case("produce 16 KiB, 1 connection x 5", 16 * KIB, 1, 5, 10_000),
    Case("produce 1 KiB, 1 connection x 5", KIB, 1, 5, 20_000),
    Case("produce 16 KiB, 50 connections x 1", 16 * KIB, 50, 1, 10_000),
    Case("produce 1 KiB, 50 connections x 1", KIB, 50, 1, 20_000),
    Case("produce 1 KiB with acks=1, 1 connection x 5", KIB, 1, 5, 20_000, acks=1),
    Case("produce 1 KiB with acks=1, 50 connections x 1", KIB, 50, 1, 20_000, acks=1),
    Case("produce 1 KiB, 50 connections over 1,000 partitions", KIB, 50, 1, 20_000, 20, only_synced=True),
    Case("fetch 1 MiB of 128 KiB batches, 1 connection x 5", 128 * KIB, 1, 5, 2_000, fetch=True),
    Case("fetch 1 MiB of 16 KiB batches, 1 connection x 5", 16 * KIB, 1, 5, 2_000, fetch=True),
    Case("fetch 1 MiB of 1 KiB batches, 1 connection x 5", KIB, 1, 5, 1_000, fetch=True),
)
FETCH_SIZE_BYTES = MIB
FETCH_DATA_BYTES = 64 * MIB


def partitions_of(case: Case, options: Options) -> tuple[int, int]:
    """The number of partitions for each connection, and in all."""
    each = 1 if options.toy else case.partitions_each
    return each, each * case.connections


def produce(case: Case, options: Options, topics: dict[str, str], contender: Contender) -> report.Figures:
    """Each connection has partitions of its own; afterwards every partition must have all acknowledged records."""
    partitions_each, partitions = partitions_of(case, options)
    topic = topics[contender.name]
    before = end_offsets(contender.broker.port, topic, range(partitions))
    batch = batch_of(case.request_size_bytes)
    rounds = max(1, int(case.requests * options.scale) // partitions)
    requests = [
        produce_requests(topic, range(first, first + partitions_each), batch, rounds * partitions_each, case.acks)
        for first in range(0, partitions, partitions_each)
    ]
    figures = bench.measure(contender, requests, case.in_flight)
    expected = rounds * max(1, case.request_size_bytes // KIB)
    after = end_offsets(contender.broker.port, topic, range(partitions))
    stored = {end - begin for begin, end in zip(before, after, strict=True)}
    if stored != {expected}:
        raise LoadFailed(f"{contender.name}: partitions have {sorted(stored)} records more, not {expected}")
    return figures


def fill(case: Case, options: Options, topics: dict[str, str], contender: Contender) -> None:
    """FETCH_DATA_BYTES in batches of the case's size."""
    topic = topics[contender.name]
    count = max(16, int(options.scale * FETCH_DATA_BYTES / case.request_size_bytes))
    run_load(contender.broker.port, [produce_requests(topic, [0], batch_of(case.request_size_bytes), count)], 5)


def fetch(case: Case, options: Options, topics: dict[str, str], contender: Contender) -> report.Figures:
    topic = topics[contender.name]
    step = FETCH_SIZE_BYTES // KIB
    offsets = range(0, max(1, end_offsets(contender.broker.port, topic, [0])[0] - step), step)
    count = max(5, int(case.requests * options.scale))
    return bench.measure(contender, [fetch_requests(topic, offsets, count, FETCH_SIZE_BYTES)], case.in_flight)


def run_case(case: Case, field: Sequence[Contender], options: Options) -> report.Result:
    if case.fetch:
        chosen = [contender for contender in field if contender.fetches]
    else:
        chosen = [contender for contender in field if contender.is_synced or not case.only_synced]
    with bench.a_topic_each(chosen, partitions_of(case, options)[1]) as topics:
        if not case.fetch:
            return bench.alternate(case.name, "req/s", chosen, partial(produce, case, options, topics), options)
        for contender in chosen:
            fill(case, options, topics, contender)
        return bench.alternate(case.name, "MB/s", chosen, partial(fetch, case, options, topics), options)


def compare(directory: Path, options: Options) -> report.Report:
    """All brokers, all cases."""
    with bench.both(directory, with_kafka=True, with_compiled=True) as shipped:
        field = bench.durabilities(shipped)
        bench.warm(field, options)
        results = [run_case(case, field, options) for case in CASES]
        peaks = bench.rss_peaks(shipped)
    return report.Report(machine.facts(), results, peaks)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("wire-load", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
