"""Common parts of the benchmarks against Apache Kafka: contenders, warming, one measured load, the result file.

The machine's speed drifts by a factor of three within minutes, so only ratios of neighbouring runs mean something:
every script alternates over its contenders. No test has timed assertions.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from confluent_kafka.admin import NewTopic

from benchmarks.lib import machine, report
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, fetch_requests, list_latest, produce_requests
from compat_tests.clients.confluent.clients import Admin, wait_until
from compat_tests.harness.apache_kafka import RUN_CLASS_JVM, STOCK_JVM, ApacheKafka
from compat_tests.harness.kafkawire_broker import CompiledKafkawire, Kafkawire
from compat_tests.harness.requirements import COMPILED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from compat_tests.harness.broker import Broker
    from kafkawire.client.load import Requests

KIB, MIB = 1 << 10, 1 << 20
WARM_SIZE_BYTES = 2 << 30
RESULTS = Path(__file__).parents[1] / "results"
MAKE_TIMEOUT_S = 300.0  # of a topic with 10,000 partitions
CLUSTER_JVM = ("-Xms512m", *RUN_CLASS_JVM)  # of each of three brokers
KAFKA_OVERRIDES = {"log.segment.delete.delay.ms": "1000"}


@dataclass(frozen=True)
class Options:
    """The options of the command line. A toy run only shows that a script works: seconds, one alternation, no
    warming."""

    toy: bool
    alternations: int
    scale: float  # share of the requests
    output: Path

    def count(self, full: int, toy: int) -> int:
        return toy if self.toy else max(toy, round(full * self.scale))


@dataclass(frozen=True)
class Contender:
    """A broker and the topic configuration that it is measured with."""

    name: str
    broker: Broker
    config: dict[str, str]
    fetches: bool = True  # durability makes no difference to a reader: one contender per broker is enough
    is_synced: bool = False  # an acknowledged record is on the disk


class Named(Protocol):
    """A contender, by its name."""

    @property
    def name(self) -> str: ...


_Measured = TypeVar("_Measured", bound=Named)


def ours(directory: Path, overrides: Mapping[str, str], *, with_compiled: bool) -> list[Kafkawire]:
    """The kafkawire brokers: the usual one and, if asked for and built, the one of compiled modules."""
    found = [Kafkawire(directory / "kafkawire", overrides)]
    if with_compiled and (COMPILED / ".done").exists():
        found.append(CompiledKafkawire(directory / "compiled", overrides))
    return found


@contextmanager
def both(
    directory: Path, *, with_kafka: bool, with_compiled: bool = False, overrides: Mapping[str, str] | None = None
) -> Iterator[list[Contender]]:
    """Both brokers running, as shipped: kafkawire syncs before it acknowledges, Apache Kafka does not."""
    chosen = dict(overrides or {})
    with ExitStack() as stack:
        found = [
            Contender(broker.name, stack.enter_context(broker), {}, is_synced=True)
            for broker in ours(directory, chosen, with_compiled=with_compiled)
        ]
        if with_kafka:
            with ApacheKafka(directory / "kafka", KAFKA_OVERRIDES | chosen, jvm=STOCK_JVM) as kafka:
                yield [*found, Contender("Kafka", kafka, {})]
        else:
            yield found


def durabilities(field: Sequence[Contender]) -> list[Contender]:
    """The contenders as shipped, and each with the other durability."""
    found = []
    for contender in field:
        found.append(contender)
        if contender.is_synced:
            config = {"flush.policy": "async"}
            found.append(Contender(f"{contender.name} async", contender.broker, config, fetches=False))
        else:
            config = {"flush.messages": "1"}
            name = f"{contender.name} fsync"
            found.append(Contender(name, contender.broker, config, fetches=False, is_synced=True))
    return found


_topics = 0


def new_topic(contender: Contender, partitions: int, **config: str) -> str:
    """A topic all of whose partitions are led: Apache Kafka lists one before it leads it."""
    global _topics  # noqa: PLW0603 - names must be unique for all callers
    _topics += 1
    topic = f"load-{_topics:05}"
    settings = contender.config | {key.replace("_", "."): value for key, value in config.items()}
    Admin(contender.broker, MAKE_TIMEOUT_S).create(NewTopic(topic, partitions, 1, config=settings))
    wait_until_led(contender, topic, range(partitions))
    return topic


def wait_until_led(contender: Contender, topic: str, partitions: Sequence[int]) -> None:
    wait_until_led_at(contender.broker.port, topic, partitions)


def wait_until_led_at(port: int, topic: str, partitions: Sequence[int]) -> None:
    """Wait until the broker at `port` leads these partitions."""
    wait_until(
        lambda: not any(error for error, _ in list_latest(port, topic, partitions)),
        f"the broker at {port} does not lead all of {topic}",
        MAKE_TIMEOUT_S,
    )


def delete_topic(contender: Contender, topic: str) -> None:
    Admin(contender.broker, MAKE_TIMEOUT_S).delete(topic)


@contextmanager
def a_topic_each(field: Sequence[Contender], partitions: int, **config: str) -> Iterator[dict[str, str]]:
    """A topic for each contender, by its name, for all its runs: Apache Kafka writes to new partitions at half its
    speed, and takes longer to make thousands of them than to write to them."""
    topics = {contender.name: new_topic(contender, partitions, **config) for contender in field}
    yield topics
    for contender in field:
        delete_topic(contender, topics[contender.name])


@contextmanager
def internal_topic_kept(contender: Contender, topic: str) -> Iterator[None]:
    """Give an internal topic the contender's durability."""
    admin = Admin(contender.broker)
    for key, value in contender.config.items():
        admin.alter_config(topic, key, value)
    yield
    for key in contender.config:
        admin.alter_config(topic, key, None)


def measure(contender: Contender, requests: list[Requests], in_flight: int) -> dict[str, float]:
    """Run one load. Returns its figures, with the broker's CPU."""
    pid = contender.broker.pid
    machine.back_memory(2 * sum(load.size_bytes for load in requests))
    before_s = machine.cpu_s(pid)
    measured = run_load(contender.broker.port, requests, in_flight)
    cpu_s = machine.cpu_s(pid) - before_s
    moved_bytes = measured.sent_bytes + measured.received_bytes
    return {
        "MB/s": moved_bytes / 1e6 / measured.seconds,
        "req/s": measured.requests / measured.seconds,
        "p50 ms": measured.percentile_ms(0.50),
        "p99 ms": measured.percentile_ms(0.99),
        "CPU s": cpu_s,
        "CPU s/GB": cpu_s / (moved_bytes / 1e9),
    }


def warm(field: Sequence[Contender], options: Options) -> None:
    """Warm the contenders: the JVM needs gigabytes before it runs at speed. Every size of the measurement is sent, and
    read.

    The amount does not depend on `options.scale`.
    """
    for contender in [] if options.toy else field:
        print(f"warming {contender.name}", flush=True)
        for size_bytes, share in ((128 * KIB, 0.9), (16 * KIB, 0.08), (KIB, 0.02)):
            topic = new_topic(contender, 4)
            each = int(share * WARM_SIZE_BYTES / size_bytes) // 4
            batch = batch_of(size_bytes)
            measure(contender, [produce_requests(topic, [partition], batch, each) for partition in range(4)], 5)
            if contender.fetches and size_bytes == 128 * KIB:
                measure(contender, [fetch_requests(topic, [0], 1_000, MIB)], 5)
            delete_topic(contender, topic)


def alternate(
    case: str,
    compared: str,
    field: Sequence[_Measured],
    once: Callable[[_Measured], report.Figures],
    options: Options,
    bound: str = "",
) -> report.Result:
    """Run A B C A B C ..., and print the result."""
    runs: dict[str, list[report.Figures]] = {contender.name: [] for contender in field}
    for _ in range(options.alternations):
        for contender in field:
            os.sync()  # dirty pages of an earlier run must not be written back during this one
            runs[contender.name].append(once(contender))
    result = report.Result(case, compared, runs, bound)
    print(report.as_text(result), flush=True)
    return result


def rss_peaks(field: Sequence[Contender]) -> dict[str, float]:
    return {each.broker.name: machine.rss_peak_mib(each.broker.pid) for each in field}


def run(
    name: str,
    description: str | None,
    compare: Callable[[Path, Options], report.Report],
    arguments: Sequence[str] | None,
    *,
    alternations: int = 5,
) -> None:
    """The main function of a benchmark: read the options, run it in a directory of its own, and write the result."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--toy", action="store_true", help="seconds instead of minutes: shows that it works, no more")
    parser.add_argument("--alternations", type=int, default=alternations)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests")
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as scratch:
        directory = Path(scratch)
        if given.toy:
            options = Options(toy=True, alternations=1, scale=0.004, output=directory / "results")
        else:
            options = Options(toy=False, alternations=given.alternations, scale=given.scale, output=given.output)
        found = compare(directory, options)
        written = report.write(found, options.output, f"{datetime.now(UTC):%Y-%m-%d}-{name}")
    if not options.toy:
        print(f"written: {written}")
