"""Time from the start of the process to the first acknowledged record: on an empty directory, and on the same data."""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, create_topic_frame, produce_requests
from compat_tests.harness.apache_kafka import STOCK_JVM, ApacheKafka
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

TOPIC = "first"
RETRY_INTERVAL_S = 0.005
TIMEOUT_S = 60.0


def create(port: int) -> None:
    with WireConnection(port) as connection:
        connection.send_frame(create_topic_frame(TOPIC))
        if connection.receive_frame() is None:
            raise LoadFailed("the broker closed the connection at CreateTopics")


def produce(port: int) -> None:
    run_load(port, [produce_requests(TOPIC, [0], batch_of(KIB), 1)], 1)


def until_done(step: Callable[[int], None], port: int) -> None:
    """Repeat a request at short intervals until it succeeds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            step(port)
        except (OSError, LoadFailed):
            if time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_INTERVAL_S)
        else:
            return


def once(makers: dict[str, Callable[[], Contender]], again: bool, contender: Contender) -> report.Figures:
    """Measure the start of a new broker on an empty directory; with `again`, its second start."""
    broker = makers[contender.name]().broker
    if again:
        with broker:
            until_done(create, broker.port)
            until_done(produce, broker.port)
    else:
        broker.directory.mkdir(parents=True)
        broker.log_path.touch()
        broker.prepare()  # formatting is no part of a start
    begun_s = time.perf_counter()
    broker.launch()
    with broker:
        if not again:
            until_done(create, broker.port)
        until_done(produce, broker.port)
        seconds = time.perf_counter() - begun_s
        cpu_s = machine.cpu_s(broker.pid)
        return {"first ack s": seconds, "CPU s": cpu_s, "RSS MiB": machine.rss_mib(broker.pid)}


def compare(directory: Path, options: Options) -> report.Report:
    numbers = itertools.count()

    def kafkawire() -> Contender:
        return Contender("kafkawire", Kafkawire(directory / f"ours-{next(numbers)}"), {}, is_synced=True)

    def kafka() -> Contender:
        return Contender("Kafka", ApacheKafka(directory / f"kafka-{next(numbers)}", jvm=STOCK_JVM), {})

    makers = {"kafkawire": kafkawire} if options.toy else {"kafkawire": kafkawire, "Kafka": kafka}
    field = [make() for make in makers.values()]
    results = []
    for case, again in (("on an empty directory", False), ("on its data", True)):
        measure = partial(once, makers, again)
        name = f"start to first acknowledged record, {case}"
        results.append(bench.alternate(name, "first ack s", field, measure, options))
    return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("start", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
