"""How large is the lag of the event loop under full load? Kafka has no such loop: no comparison."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.brokers import fairness
from benchmarks.lib import bench, machine, report, watched
from benchmarks.lib.background import working
from benchmarks.lib.bench import KIB, MIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, fetch_requests, produce_requests
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

IDLE_S = 3.0
Window = tuple[float, float]


def produce(size_bytes: int, connections: int, in_flight: int, requests: int, contender: Contender) -> None:
    topic = bench.new_topic(contender, connections)
    batch = batch_of(size_bytes)
    loads = [produce_requests(topic, [each], batch, requests // connections) for each in range(connections)]
    run_load(contender.broker.port, loads, in_flight)
    bench.delete_topic(contender, topic)


def fetch(requests: int, contender: Contender) -> None:
    topic = bench.new_topic(contender, 1)
    run_load(contender.broker.port, [produce_requests(topic, [0], batch_of(128 * KIB), 64)], 5)
    run_load(contender.broker.port, [fetch_requests(topic, range(0, 7_000, 1_000), requests, MIB)], 5)
    bench.delete_topic(contender, topic)


def produce_beside_large(requests: int, contender: Contender) -> None:
    """The load of benchmarks.brokers.fairness, whose clients measure their latency there."""
    topic, large_topic = bench.new_topic(contender, fairness.FEW), bench.new_topic(contender, 1, **fairness.LARGE_KEPT)
    with working(fairness.send_large, contender.broker.port, large_topic):
        run_load(contender.broker.port, fairness.small_requests(topic, fairness.FEW, requests), 1)
    for each in (topic, large_topic):
        bench.delete_topic(contender, each)


def idle(seconds: float, contender: Contender) -> None:
    assert contender.broker.pid
    time.sleep(seconds)


def figures(notes: list[tuple[float, float]], window: Window) -> report.Figures:
    lags = sorted(1000 * lag_s for at_s, lag_s in notes if window[0] <= at_s <= window[1])
    lags = lags or [1000 * (window[1] - window[0])]  # it did not wake once
    return {
        "p50 ms": lags[len(lags) // 2],
        "p99 ms": lags[int(len(lags) * 0.99)],
        "max ms": lags[-1],
        "wake-ups": len(lags),
        "seconds": window[1] - window[0],
    }


def compare(directory: Path, options: Options) -> report.Report:
    cases: dict[str, Callable[[Contender], None]] = {
        "idle": partial(idle, 0.2 if options.toy else IDLE_S),
        "produce 128 KiB, 1 connection x 5": partial(produce, 128 * KIB, 1, 5, options.count(8_000, 50)),
        "produce 1 KiB, 50 connections x 5": partial(produce, KIB, 50, 5, options.count(60_000, 500)),
        "produce 1 KiB, 50 connections x 1, beside 128 KiB, 1 connection x 16": partial(
            produce_beside_large, options.count(100_000, 500)
        ),
        "fetch 1 MiB, 1 connection x 5": partial(fetch, options.count(4_000, 50)),
    }
    windows: dict[tuple[str, str], list[Window]] = {}
    broker = Kafkawire(directory / "kafkawire", fairness.OVERRIDES)
    watched.watch(broker, "lag_broker")
    with broker:
        field = bench.durabilities([Contender("kafkawire", broker, {}, is_synced=True)])
        for case, load in cases.items():
            for _ in range(options.alternations):
                for contender in field:
                    begun_s = time.monotonic()
                    load(contender)
                    windows.setdefault((case, contender.name), []).append((begun_s, time.monotonic()))
        peaks = bench.rss_peaks(field[:1])
    notes = watched.notes_of(broker)
    results = []
    for case in cases:
        runs = {each.name: [figures(notes, window) for window in windows[case, each.name]] for each in field}
        results.append(report.Result(case, "p99 ms", runs))
        print(report.as_text(results[-1]), flush=True)
    return report.Report(machine.facts(), results, peaks)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("loop-lag", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
