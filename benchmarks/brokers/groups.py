"""Cost of groups: a rebalance of 10 to 500 members, commits, offsets of 1,000 partitions, 1,000 idle groups.

kafkawire syncs before it acknowledges; Apache Kafka, as shipped, does not. So commits are also compared with an Apache
Kafka that syncs its topic of offsets.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, group_requests, machine, report
from benchmarks.lib.background import working
from benchmarks.lib.group_requests import Member
from benchmarks.lib.wire_requests import batch_of, produce_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Contender, Options

GROUP_SIZES = (10, 100, 500)
REBALANCES = 5
IDLE_GROUPS = 1_000
OFFSETS_EACH = 10
AT_ONCE = 100
PARTITIONS = 1_000
OFFSETS_PER_S = 20_000
COMMITTED_TO = ("kafkawire", "Kafka", "Kafka fsync")  # kafkawire always syncs offsets


@dataclass(frozen=True)
class Commits:
    """A load of commits; each connection commits for a group of its own."""

    name: str
    connections: int
    in_flight: int
    requests: int


COMMITS = (
    Commits("commits, 1 connection x 1", 1, 1, 3_000),
    Commits("commits, 1 connection x 5", 1, 5, 10_000),
    Commits("commits, 50 connections x 1", 50, 1, 30_000),
)


def rebalance(size: int, numbers: list[int], contender: Contender) -> report.Figures:
    """Measure rebalances of a settled group: all members join again at once."""
    numbers[0] += 1
    port = contender.broker.port
    with ExitStack() as stack:
        members = [Member(port, f"size-{size}-{numbers[0]}") for _ in range(size)]
        for member in members:
            stack.callback(member.close)
            member.introduce()
        before_s = machine.cpu_s(contender.broker.pid)
        group_requests.rebalance_s(members)
        times_s = [group_requests.rebalance_s(members) for _ in range(REBALANCES)]
        cpu_s = machine.cpu_s(contender.broker.pid) - before_s
    return {"rebalances/s": 1 / statistics.median(times_s), "ms": 1000 * statistics.median(times_s), "CPU s": cpu_s}


def commit(load: Commits, options: Options, topics: dict[str, str], contender: Contender) -> report.Figures:
    each = max(1, options.count(load.requests, load.connections) // load.connections)
    topic = topics[contender.name]
    requests = [
        group_requests.commit_requests(f"committer-{number}", topic, [number], each)
        for number in range(load.connections)
    ]
    with bench.internal_topic_kept(contender, "__consumer_offsets"):
        figures = bench.measure(contender, requests, load.in_flight)
    return {name: figures[name] for name in ("req/s", "p50 ms", "p99 ms", "CPU s")}


def fetch(options: Options, topics: dict[str, str], contender: Contender) -> report.Figures:
    partitions = range(options.count(PARTITIONS, 10))
    requests = group_requests.fetch_requests("fetched", topics[contender.name], partitions, options.count(2_000, 10))
    figures = bench.measure(contender, [requests], 1)
    return {name: figures[name] for name in ("req/s", "p50 ms", "p99 ms", "CPU s")}


def fetches(options: Options, field: Sequence[Contender]) -> report.Result:
    count = options.count(PARTITIONS, 10)
    topics = {contender.name: bench.new_topic(contender, count) for contender in field}
    for contender in field:
        group_requests.commit_many(contender.broker.port, "fetched", topics[contender.name], range(count))
    case = f"OffsetFetch of {count:,} partitions"
    return bench.alternate(case, "req/s", field, partial(fetch, options, topics), options)


def produce_beside_commits(options: Options, numbers: list[int], contender: Contender) -> report.Figures:
    """Measure produce requests and topic creation alone, beside commits of 20,000 offsets a second, and beside as many
    batches."""
    port = contender.broker.port
    committed = bench.new_topic(contender, group_requests.CHUNK)
    produced = bench.new_topic(contender, 1)
    figures = {}

    def measure(name: str) -> None:
        requests = produce_requests(produced, [0], batch_of(bench.KIB), options.count(4_000, 20))
        figures[f"produce p99 ms {name}"] = bench.measure(contender, [requests], 1)["p99 ms"]
        numbers[0] += 1
        prefix, count = f"made-{numbers[0]:05}", min(10, options.count(10, 2))
        created = bench.measure(contender, [group_requests.creation_requests(prefix, count)], 1)
        figures[f"create p50 ms {name}"] = created["p50 ms"]
        for number in range(count):
            bench.delete_topic(contender, f"{prefix}-{number}")

    measure("alone")
    with working(group_requests.commit_on, port, "beside", committed, OFFSETS_PER_S) as commits:
        measure("beside")
    with working(group_requests.produce_on, port, committed, OFFSETS_PER_S):
        measure("beside batches")
    figures["commit p50 ms"] = 1000 * statistics.median(commits.latencies_s)
    for topic in (committed, produced):
        bench.delete_topic(contender, topic)
    return figures


def idle_groups(directory: Path, options: Options) -> report.Result:
    """The memory of idle groups on fresh brokers: a broker that has served others has memory to spare. Each group has a
    member and ten offsets."""
    count = options.count(IDLE_GROUPS, 10)
    runs: dict[str, list[report.Figures]] = {}
    for number in range(options.alternations):
        with bench.both(directory / f"fresh-{number}", with_kafka=not options.toy, overrides=OVERRIDES) as field:
            for contender in field:
                runs.setdefault(contender.name, []).append(_memory(count, contender))
    case = f"memory of {count:,} idle groups, each with a member and {OFFSETS_EACH} offsets"
    result = report.Result(case, "RSS MiB", runs)
    print(report.as_text(result), flush=True)
    return result


def _memory(count: int, contender: Contender) -> report.Figures:
    broker = contender.broker
    topic = bench.new_topic(contender, OFFSETS_EACH)
    group_requests.wait_for_coordinator(broker.port, "first")
    before_mib = machine.rss_mib(broker.pid)
    begun_s = time.monotonic()
    for first in range(0, count, AT_ONCE):
        members = [Member(broker.port, f"idle-{number}") for number in range(first, min(first + AT_ONCE, count))]
        for member in members:
            member.introduce()
        group_requests.rebalance_s(members)
        for member in members:
            member.commit(topic, range(OFFSETS_EACH))
            member.close()
    after_mib = machine.rss_mib(broker.pid)
    spent_s = time.monotonic() - begun_s
    assert spent_s < group_requests.SESSION_TIMEOUT_MS / 1000, f"the first members have left after {spent_s:.0f} s"
    return {"KiB each": (after_mib - before_mib) * 1024 / count, "RSS MiB": after_mib}


OVERRIDES = {"group.initial.rebalance.delay.ms": "100"}  # time for all members to come


def compare(directory: Path, options: Options) -> report.Report:
    results = [idle_groups(directory, options)]
    with bench.both(directory, with_kafka=not options.toy, overrides=OVERRIDES) as shipped:
        for contender in shipped:
            group_requests.wait_for_coordinator(contender.broker.port, "first")
        bench.warm(shipped, options)
        numbers = [0]
        results += [
            bench.alternate(f"rebalance of {size} members", "ms", shipped, partial(rebalance, size, numbers), options)
            for size in (GROUP_SIZES[:1] if options.toy else GROUP_SIZES)
        ]
        committed_to = [each for each in bench.durabilities(shipped) if each.name in COMMITTED_TO]
        for load in COMMITS[:1] if options.toy else COMMITS:
            with bench.a_topic_each(committed_to, load.connections) as topics:
                once = partial(commit, load, options, topics)
                results.append(bench.alternate(load.name, "req/s", committed_to, once, options))
        results.append(fetches(options, shipped))
        case = f"produce and topic creation beside {OFFSETS_PER_S:,} committed offsets/s"
        results.append(
            bench.alternate(
                case, "produce p99 ms beside", shipped, partial(produce_beside_commits, options, numbers), options
            )
        )
        return report.Report(machine.facts(), results, bench.rss_peaks(shipped))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("groups", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
