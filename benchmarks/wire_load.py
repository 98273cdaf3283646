"""How fast are the brokers themselves? Pre-encoded requests, the same bytes to kafkawire and to Apache Kafka.

Starts both, warms them, then alternates between the contenders: this machine's speed drifts by a factor of three within
minutes, so only ratios of neighbouring runs mean something. Each contender is a broker and a topic configuration, so
that every durability is measured: kafkawire syncs before it acknowledges unless told otherwise, Apache Kafka does not.
A client as users have it is measured elsewhere; timed assertions belong nowhere.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from benchmarks import machine, report
from benchmarks.load import LoadFailedError, Requests, run_load
from benchmarks.wire_requests import batch_of, end_offset, fetch_requests, list_latest, produce_requests
from compat_tests.confluent.clients import Admin, create_topic, wait_until
from compat_tests.harness.apache_kafka import STOCK_JVM, ApacheKafka
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compat_tests.harness.broker import Broker

KIB, MIB = 1 << 10, 1 << 20
WARM_SIZE_BYTES = 2 << 30
RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Case:
    """One question: so many requests of a size, over so many connections, with so many in flight on each."""

    name: str
    request_size_bytes: int
    connections: int
    in_flight: int
    requests: int
    fetch: bool = False  # read the data back instead, 1 MiB a time


CASES = (
    Case("produce 128 KiB, 1 connection x 5", 128 * KIB, 1, 5, 4_000),
    Case("produce 16 KiB, 1 connection x 5", 16 * KIB, 1, 5, 10_000),
    Case("produce 1 KiB, 1 connection x 5", KIB, 1, 5, 20_000),
    Case("produce 16 KiB, 50 connections x 1", 16 * KIB, 50, 1, 10_000),
    Case("produce 1 KiB, 50 connections x 1", KIB, 50, 1, 20_000),
    Case("fetch 1 MiB of 128 KiB batches, 1 connection x 5", 128 * KIB, 1, 5, 2_000, fetch=True),
    Case("fetch 1 MiB of 16 KiB batches, 1 connection x 5", 16 * KIB, 1, 5, 2_000, fetch=True),
    Case("fetch 1 MiB of 1 KiB batches, 1 connection x 5", KIB, 1, 5, 1_000, fetch=True),
)
FETCH_SIZE_BYTES = MIB
FETCH_DATA_BYTES = 64 * MIB


@dataclass(frozen=True)
class Contender:
    """A broker and the topic configuration that it is measured with."""

    name: str
    broker: Broker
    config: dict[str, str]
    fetches: bool  # durability makes no difference to a reader: one contender per broker is enough


def contenders(ours: Broker, kafka: Broker) -> list[Contender]:
    """Those that exist: a kafkawire that does not know flush.policy has one durability only."""
    found = [Contender("kafkawire", ours, {}, fetches=True)]
    flush_async = Contender("kafkawire async", ours, {"flush.policy": "async"}, fetches=False)
    try:
        create_topic(ours, "probe", config=flush_async.config)
    except KafkaException as refused:
        print(f"no 'kafkawire async': {refused}")
    else:
        found.append(flush_async)
    found.append(Contender("Kafka", kafka, {}, fetches=True))
    found.append(Contender("Kafka fsync", kafka, {"flush.messages": "1"}, fetches=False))
    return found


class Bench:
    """Runs cases against contenders; `scale` shrinks them all for a quick look."""

    def __init__(self, scale: float, alternations: int) -> None:
        self._scale = scale
        self._alternations = alternations
        self._topics = 0

    def warm(self, contender: Contender) -> None:
        """The JVM needs gigabytes before it runs at speed; every size that is measured comes by."""
        for size_bytes, share in ((128 * KIB, 0.9), (16 * KIB, 0.08), (KIB, 0.02)):
            requests = max(20, int(self._scale * share * WARM_SIZE_BYTES / size_bytes))
            self._produce(contender, Case("warm-up", size_bytes, 4, 5, requests))
        self._fetch_once(contender)

    def _fetch_once(self, contender: Contender) -> None:
        case = Case("warm-up", 128 * KIB, 1, 5, max(5, int(self._scale * 1_000)), fetch=True)
        topic = self._fill(contender, case)
        self._fetch(contender, case, topic)
        Admin(contender.broker).delete(topic)

    def run(self, case: Case, field: list[Contender]) -> report.Result:
        """Alternates over the contenders: A B C A B C ..."""
        runs: dict[str, list[report.Run]] = {contender.name: [] for contender in field}
        topics = {contender.name: self._fill(contender, case) for contender in field} if case.fetch else {}
        for _ in range(self._alternations):
            for contender in field:
                os.sync()  # what an earlier run left dirty must not be written back during this one
                if case.fetch:
                    run = self._fetch(contender, case, topics[contender.name])
                else:
                    run = self._produce(contender, case)
                runs[contender.name].append(run)
        for contender in field:
            if case.fetch:
                Admin(contender.broker).delete(topics[contender.name])
        return report.Result(case.name, "MB/s" if case.fetch else "req/s", runs)

    def _new_topic(self, contender: Contender, partitions: int) -> str:
        self._topics += 1
        topic = f"load-{self._topics:05}"
        create_topic(contender.broker, topic, partitions, contender.config)
        self._wait_for_leaders(contender, topic, partitions)
        return topic

    def _wait_for_leaders(self, contender: Contender, topic: str, partitions: int) -> None:
        """Apache Kafka lists a partition before it leads it."""

        def led() -> bool:
            return all(list_latest(contender.broker.port, topic, number)[0] == 0 for number in range(partitions))

        wait_until(led, f"{contender.name} does not lead all of {topic}")

    def _produce(self, contender: Contender, case: Case) -> report.Run:
        """Each connection writes a partition of its own; afterwards every partition must hold what was acknowledged."""
        topic = self._new_topic(contender, case.connections)
        batch = batch_of(case.request_size_bytes)
        each = max(1, int(case.requests * self._share(case)) // case.connections)
        requests = [produce_requests(topic, partition, batch, each) for partition in range(case.connections)]
        run = self._measure(contender, requests, case.in_flight)
        expected = each * max(1, case.request_size_bytes // KIB)
        for partition in range(case.connections):
            found = end_offset(contender.broker.port, topic, partition)
            if found != expected:
                raise LoadFailedError(f"{contender.name}: partition {partition} ends at {found}, not {expected}")
        Admin(contender.broker).delete(topic)
        return run

    def _share(self, case: Case) -> float:
        return 1.0 if case.name == "warm-up" else self._scale

    def _fill(self, contender: Contender, case: Case) -> str:
        """A topic with FETCH_DATA_BYTES in batches of the case's size."""
        topic = self._new_topic(contender, 1)
        count = max(16, int(self._scale * FETCH_DATA_BYTES / case.request_size_bytes))
        run_load(contender.broker.port, [produce_requests(topic, 0, batch_of(case.request_size_bytes), count)], 5)
        return topic

    def _fetch(self, contender: Contender, case: Case, topic: str) -> report.Run:
        records = end_offset(contender.broker.port, topic, 0)
        step = FETCH_SIZE_BYTES // KIB
        offsets = range(0, max(1, records - step), step)
        count = max(5, int(case.requests * self._share(case)))
        return self._measure(contender, [fetch_requests(topic, offsets, count, FETCH_SIZE_BYTES)], case.in_flight)

    def _measure(self, contender: Contender, requests: list[Requests], in_flight: int) -> report.Run:
        pid = contender.broker.pid
        before_s = machine.cpu_s(pid)
        measured = run_load(contender.broker.port, requests, in_flight)
        moved_bytes = measured.sent_bytes + measured.received_bytes
        return report.Run(
            seconds=measured.seconds,
            requests_per_s=measured.requests / measured.seconds,
            mb_per_s=moved_bytes / 1e6 / measured.seconds,
            p50_ms=measured.percentile_ms(0.50),
            p99_ms=measured.percentile_ms(0.99),
            cpu_s=machine.cpu_s(pid) - before_s,
            cpu_s_per_gb=(machine.cpu_s(pid) - before_s) / (moved_bytes / 1e9),
        )


def compare(bench: Bench, directory: Path, *, warm: bool) -> report.Report:
    """Both brokers, all cases."""
    results = []
    kafka = ApacheKafka(directory / "kafka", {"log.segment.delete.delay.ms": "1000"}, jvm=STOCK_JVM)
    with kafka, Kafkawire(directory / "kafkawire") as ours:
        field = contenders(ours, kafka)
        for contender in field if warm else []:
            print(f"warming {contender.name}", flush=True)
            bench.warm(contender)
        for case in CASES:
            chosen = [each for each in field if each.fetches or not case.fetch]
            result = bench.run(case, chosen)
            results.append(result)
            print(report.as_text(result), flush=True)
        peaks = {broker.name: machine.rss_peak_mib(broker.pid) for broker in (ours, kafka)}
    return report.Report(machine.facts(), results, peaks)


def main(options: Sequence[str] | None = None) -> None:
    """Runs the comparison and writes it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toy", action="store_true", help="seconds instead of minutes: shows that it works, no more")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args(options)
    bench = Bench(0.004, 1) if arguments.toy else Bench(arguments.scale, arguments.alternations)
    with tempfile.TemporaryDirectory(prefix="wire-load-") as directory:
        found = compare(bench, Path(directory), warm=not arguments.toy)
        output = Path(directory) / "results" if arguments.toy else arguments.output
        written = report.write(found, output, f"{datetime.now(UTC):%Y-%m-%d}-wire-load")
    if not arguments.toy:
        print(f"written: {written}")


if __name__ == "__main__":
    main()
