"""How much CPU does the broker need for a small request, and how much does any server in this interpreter need?

The second figure is that of benchmarks.parts.floor, which takes the same bytes in the same run. Where records are
synced, `floor` is its journal, and `floor, files` is without one. The floor does not know requests that only read the
start and end of a partition, as Spark's own source sends at each poll.

A server's CPU is that of the process. The broker leaves its syncs to workers of the kernel, whose CPU no process is
charged for, the floor to a thread: so the CPU of the first thread, which is that of the event loop in both, is shown
beside it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, Contender
from benchmarks.lib.floor_process import Floor
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, end_requests, produce_requests
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from kafkawire.client.load import Requests

COMPARED = "CPU us/request"
WARM_REQUESTS = 10  # to each partition, by each contender: files exist and caches are filled


@dataclass(frozen=True)
class Case:
    """A case: so many requests of a size, over so many connections, with so many in flight on each."""

    name: str
    request_size_bytes: int
    connections: int
    in_flight: int
    requests: int
    is_synced: bool = False
    partitions_each: int = 1  # of a connection, which writes them in turn
    bound: str = ""


# No load writes more than 64 MiB: with hundreds, the host of a virtual machine has to supply memory for the page cache.
# That was seen to cost four times the request, although bench.measure has some memory at hand.
CASES = (
    Case("1 KiB async, 1 connection x 5", KIB, 1, 5, 40_000, bound="CPU at most 1.8 x the floor's"),
    Case("1 KiB async, 50 connections x 1", KIB, 50, 1, 40_000, bound="CPU at most 1.8 x the floor's"),
    Case("16 KiB async, 50 connections x 1", 16 * KIB, 50, 1, 4_000),
    Case("128 KiB async, 1 connection x 5", 128 * KIB, 1, 5, 500, bound="CPU at most 1.5 x the floor's"),
    Case("1 KiB synced, 1 connection x 5", KIB, 1, 5, 20_000, is_synced=True),
    Case("1 KiB synced, 50 connections x 1", KIB, 50, 1, 20_000, is_synced=True),
    Case("1 KiB synced, 50 connections over 1,000 partitions", KIB, 50, 1, 20_000, is_synced=True, partitions_each=20),
)
LOOKUPS = 40_000


@contextmanager
def servers(directory: Path) -> Iterator[tuple[list[Contender], list[Contender]]]:
    """All servers, running: those that answer when records are written, and those that answer when they are synced."""
    with ExitStack() as stack:
        ours = [stack.enter_context(broker) for broker in bench.ours(directory, {}, with_compiled=True)]
        modes = ("async", "journal", "sync")
        unsynced, journalling, syncing = (stack.enter_context(Floor(directory / mode, mode)) for mode in modes)
        yield (
            [
                *(Contender(broker.name, broker, {"flush.policy": "async"}) for broker in ours),
                Contender("floor", unsynced, {}),
            ],
            [
                *(Contender(broker.name, broker, {}, is_synced=True) for broker in ours),
                Contender("floor", journalling, {}, is_synced=True),
                Contender("floor, files", syncing, {}, is_synced=True),
            ],
        )


def requests_of(case: Case, count: int, topic: str) -> list[Requests]:
    """Requests of a case: the same number to each partition; each connection has partitions of its own."""
    batch, each = batch_of(case.request_size_bytes), case.partitions_each
    firsts = range(0, case.connections * each, each)
    return [produce_requests(topic, range(first, first + each), batch, count * each) for first in firsts]


def once(
    in_flight: int, make: Callable[[str], list[Requests]], topics: Mapping[str, str], contender: Contender
) -> report.Figures:
    pid = contender.broker.pid
    requests = make(topics[contender.name])
    before_s = machine.first_thread_cpu_s(pid)
    measured = bench.measure(contender, requests, in_flight)
    loop_s = machine.first_thread_cpu_s(pid) - before_s
    us_each = 1e6 / sum(each.count for each in requests)
    return {
        "req/s": measured["req/s"],
        "p99 ms": measured["p99 ms"],
        COMPARED: us_each * measured["CPU s"],
        "of it the loop's": us_each * loop_s,
    }


def run_case(case: Case, field: Sequence[Contender], options: Options) -> report.Result:
    """Measure a case. All get the same bytes but for the topic's number; the floor makes a topic at its first
    request."""
    partitions = case.connections * case.partitions_each
    brokers = [contender for contender in field if isinstance(contender.broker, Kafkawire)]
    made = {contender.name: bench.new_topic(contender, partitions) for contender in brokers}
    topics = {contender.name: made.get(contender.name, made[field[0].name]) for contender in field}
    count = max(1, options.count(case.requests, partitions) // partitions)
    for contender in field:
        run_load(contender.broker.port, requests_of(case, WARM_REQUESTS, topics[contender.name]), case.in_flight)
    action = partial(once, case.in_flight, partial(requests_of, case, count), topics)
    result = bench.alternate(case.name, COMPARED, field, action, options, case.bound)
    for contender in brokers:
        bench.delete_topic(contender, made[contender.name])
    return result


def run_lookups(field: Sequence[Contender], options: Options) -> report.Result:
    """Measure ListOffsets with one connection and one request at a time: a consumer waits for each."""
    brokers = [contender for contender in field if isinstance(contender.broker, Kafkawire)]
    topics = {contender.name: bench.new_topic(contender, 1) for contender in brokers}
    count = options.count(LOOKUPS, 20)
    action = partial(once, 1, lambda topic: [end_requests(topic, count)], topics)
    result = bench.alternate("ListOffsets of ends, 1 connection x 1", COMPARED, brokers, action, options)
    for contender in brokers:
        bench.delete_topic(contender, topics[contender.name])
    return result


def compare(directory: Path, options: Options) -> report.Report:
    machine.raise_descriptor_limit()
    with servers(directory) as (unsynced, synced):
        results = [run_case(case, synced if case.is_synced else unsynced, options) for case in CASES]
        results.append(run_lookups(unsynced, options))
        return report.Report(machine.facts(), results, bench.rss_peaks(unsynced[:1]))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("request-cost", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
