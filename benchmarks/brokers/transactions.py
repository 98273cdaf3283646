"""Cost of transactions: their number a second from 1, 10 and 50 producers, and the speed of committed reads.

Java's client, as shipped: it uses the second protocol (KIP-890) with both. kafkawire syncs each step of a transaction
before it is answered; Apache Kafka, as shipped, does not, so it is measured as well with its topic of transactions and
the written topic synced. Readers are bare connections.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import MIB
from benchmarks.lib.wire_requests import end_offsets, fetch_requests
from compat_tests.harness.apache_kafka import CLASSPATH, RUN_CLASS_JVM
from compat_tests.harness.tools import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.lib.bench import Contender, Options

COMPARED = ("kafkawire", "kafkawire compiled", "Kafka", "Kafka fsync")
RECORDS = 100  # of a transaction
RECORD_SIZE_BYTES = 100
READ_TRANSACTIONS = 3_000
ABORTED_SHARE = 0.1
FETCHES = 2_000
IN_FLIGHT = 5
COMPILED_WITHIN_S, RUN_WITHIN_S = 60, 600


@dataclass(frozen=True)
class Case:
    """A case: so many producers, each with so many measured transactions, after as many to warm up."""

    producers: int
    transactions: int
    bound: str

    @property
    def name(self) -> str:
        return f"{self.producers} producer{'s' if self.producers > 1 else ''}"


CASES = (
    Case(1, 2_000, "ahead of Kafka as shipped"),
    Case(10, 300, ""),
    Case(50, 100, "0.5 x Kafka as shipped"),
)


def compiled_load(directory: Path) -> list[str]:
    """The command of TransactionLoad."""
    source = Path(__file__).with_name("TransactionLoad.java")
    run(["javac", "-cp", CLASSPATH, "-d", str(directory), str(source)], timeout_s=COMPILED_WITHIN_S)
    return ["java", "-Xmx1g", *RUN_CLASS_JVM, "-cp", f"{directory}:{CLASSPATH}", "TransactionLoad"]


def loaded(
    command: list[str], contender: Contender, topic: str, case: Case, count: int, aborted_share: float = 0.0
) -> report.Figures:
    """The figures of the load, with the broker's CPU."""
    asked = [topic, case.producers, count, count, RECORDS, RECORD_SIZE_BYTES, aborted_share]
    process = subprocess.Popen(
        [*command, contender.broker.bootstrap, *map(str, asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        _event(process.stdout, "warm")
        before_s = machine.cpu_s(contender.broker.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        seconds = _event(process.stdout, "measured")["seconds"]
        cpu_s = machine.cpu_s(contender.broker.pid) - before_s
        done = _event(process.stdout, "done")
        assert process.wait(RUN_WITHIN_S) == 0
    transactions = case.producers * count
    return {
        "transactions/s": transactions / seconds,
        "p50 ms": done["p50_ms"],
        "p99 ms": done["p99_ms"],
        "CPU ms each": 1000 * cpu_s / transactions,
        "failed": done["failed"],
    }


def _event(lines: Iterable[str], event: str) -> dict[str, Any]:
    """The next event of the load program; log lines of Java's client are left out."""
    line = next((line for line in lines if line.startswith("{")), "{}")
    document: dict[str, Any] = json.loads(line)
    assert document.get("event") == event, f"the load says {line!r} where it should be {event}"
    return document


def transact(
    command: list[str], case: Case, options: Options, topics: dict[str, str], contender: Contender
) -> report.Figures:
    with bench.internal_topic_kept(contender, "__transaction_state"):
        return loaded(command, contender, topics[contender.name], case, options.count(case.transactions, 2))


def read(options: Options, topics: dict[str, str], contender: Contender) -> report.Figures:
    """Fetch the same offsets, once of all records and once of committed ones."""
    topic = topics[contender.name]
    [end_offset] = end_offsets(contender.broker.port, topic, [0])
    step = MIB // RECORD_SIZE_BYTES
    offsets = range(0, max(1, end_offset - step), step)
    figures = {}
    for name, isolation_level in (("uncommitted", 0), ("committed", 1)):
        requests = fetch_requests(topic, offsets, options.count(FETCHES, 10), MIB, isolation_level)
        measured = bench.measure(contender, [requests], IN_FLIGHT)
        figures[f"MB/s {name}"] = measured["MB/s"]
        figures[f"CPU s/GB {name}"] = measured["CPU s/GB"]
    figures["committed to uncommitted"] = figures["MB/s committed"] / figures["MB/s uncommitted"]
    return figures


def reads(command: list[str], field: Sequence[Contender], options: Options) -> report.Result:
    with bench.a_topic_each(field, 1) as topics:
        for contender in field:
            count = options.count(READ_TRANSACTIONS, 4) // 2  # half of them warm
            loaded(command, contender, topics[contender.name], Case(1, count, ""), count, ABORTED_SHARE)
        case = f"fetch 1 MiB of transactions of 10 KiB, one in ten aborted, 1 connection x {IN_FLIGHT}"
        return bench.alternate(case, "MB/s committed", field, partial(read, options, topics), options)


def compare(directory: Path, options: Options) -> report.Report:
    command = compiled_load(directory)
    with bench.both(directory, with_kafka=not options.toy, with_compiled=not options.toy) as shipped:
        bench.warm(shipped, options)
        field = [contender for contender in bench.durabilities(shipped) if contender.name in COMPARED]
        with bench.a_topic_each(field, 1) as topics:  # and with it the topic of transactions
            for contender in field:
                loaded(command, contender, topics[contender.name], CASES[0], options.count(1_000, 2))
        results = []
        for case in CASES[:1] if options.toy else CASES:
            with bench.a_topic_each(field, case.producers) as topics:
                once = partial(transact, command, case, options, topics)
                title = f"transactions of {RECORDS} records of {RECORD_SIZE_BYTES} bytes, {case.name}"
                results.append(bench.alternate(title, "transactions/s", field, once, options, case.bound))
        results.append(reads(command, [one for one in field if one.fetches], options))
        return report.Report(machine.facts(), results, bench.rss_peaks(shipped))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("transactions", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
