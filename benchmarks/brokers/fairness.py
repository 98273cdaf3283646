"""Are small requests served in time: beside a connection that sends large ones without pause, and on many connections?

Everything is `flush.policy=async`, so that the event loop is shared and not the disk. The broker itself reports the lag
of the loop, ten times a second; loop_lag looks closer. The subject is one task for all connections: no Apache Kafka
here, but the floor, because many connections cost the machine something too.
"""

from __future__ import annotations

import math
import re
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.lib import bench, machine, report
from benchmarks.lib.background import keep_under_way, working
from benchmarks.lib.bench import KIB, MIB, Contender
from benchmarks.lib.floor_process import Floor
from benchmarks.lib.load import run_load
from benchmarks.lib.paced_load import run_paced
from benchmarks.lib.wire_requests import batch_of, produce_requests
from compat_tests.harness.kafkawire_broker import Kafkawire
from kafkawire.client.load import percentile_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from benchmarks.lib.background import BackgroundWork
    from benchmarks.lib.bench import Options
    from kafkawire.client.load import Requests

    Load = Callable[[int, Sequence[Requests]], Iterable[float]]  # port and requests to how long each answer took

FEW, MANY = 50, 500  # connections
LARGE_IN_FLIGHT = 16  # as many as the broker takes of a connection
PER_S = 1_000.0  # of all connections together: about a twentieth of the broker's maximum
OVERRIDES = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000"}
LARGE_KEPT = {"segment_bytes": str(128 * MIB), "retention_bytes": str(256 * MIB)}  # else it is gigabytes, and the disk
LAG: Final = re.compile(r'^kafkawire_event_loop_lag_seconds_bucket\{le="(\S+)"\} (\S+)$', re.MULTILINE)
BOUND = "p99 at most 3 x that without the large ones; p99 of the loop's lag at most 10 ms, better 5"


def at_full_speed(port: int, requests: Sequence[Requests]) -> Iterable[float]:
    return run_load(port, requests, 1).latencies_s


def at_a_pace(port: int, requests: Sequence[Requests]) -> Iterable[float]:
    return run_paced(port, requests, PER_S)


def send_large(background: BackgroundWork, port: int, topic: str) -> None:
    keep_under_way(background, port, produce_requests(topic, [0], batch_of(128 * KIB), 1), LARGE_IN_FLIGHT)


def small_requests(topic: str, connections: int, count: int) -> list[Requests]:
    """Small requests, with a partition for each connection."""
    batch = batch_of(KIB)
    return [produce_requests(topic, [each], batch, count // connections) for each in range(connections)]


def lags(broker: Kafkawire) -> dict[float, float]:
    """The number of lags of the loop up to each bound in seconds, since the broker started."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as answer:
        return {float(bound): float(count) for bound, count in LAG.findall(answer.read().decode())}


def lag_p99_ms(before: dict[float, float], after: dict[float, float]) -> float:
    """The p99 of the lag in ms, as the upper bound of its bucket."""
    times = {bound: count - before[bound] for bound, count in after.items()}
    return next(1000 * bound for bound, count in sorted(times.items()) if count >= 0.99 * times[math.inf])


def beside_large(load: Load, count: int, broker: Kafkawire, contender: Contender) -> report.Figures:
    """Measure small requests without the large ones, then with them."""
    topic, large_topic = bench.new_topic(contender, FEW), bench.new_topic(contender, 1, **LARGE_KEPT)
    requests = small_requests(topic, FEW, count)
    alone_ms = percentile_ms(sorted(load(broker.port, requests)), 0.99)
    with working(send_large, broker.port, large_topic) as large:
        lags_before, large_before, begun_s = lags(broker), large.count, time.perf_counter()
        latencies_s = sorted(load(broker.port, requests))
        seconds = time.perf_counter() - begun_s
        lags_after, large_count = lags(broker), large.count - large_before
    for each in (topic, large_topic):
        bench.delete_topic(contender, each)
    return {
        "p99 ms alone": alone_ms,
        "p50 ms": percentile_ms(latencies_s, 0.50),
        "p99 ms": percentile_ms(latencies_s, 0.99),
        "p99 with to without": percentile_ms(latencies_s, 0.99) / alone_ms,
        "req/s": len(latencies_s) / seconds,
        "large req/s": large_count / seconds,
        "loop lag p99 at most ms": lag_p99_ms(lags_before, lags_after),
    }


def many(topic: str, count: int, contender: Contender) -> report.Figures:
    """The same number of requests over few connections, then over many; the floor makes a topic at its first
    request."""
    few_figures = bench.measure(contender, small_requests(topic, FEW, count), 1)
    many_figures = bench.measure(contender, small_requests(topic, MANY, count), 1)
    return {
        f"req/s of {FEW}": few_figures["req/s"],
        f"req/s of {MANY}": many_figures["req/s"],
        f"{MANY} to {FEW}": many_figures["req/s"] / few_figures["req/s"],
        f"CPU us/request of {FEW}": 1e6 * few_figures["CPU s"] / count,
        f"CPU us/request of {MANY}": 1e6 * many_figures["CPU s"] / count,
        f"p99 ms of {MANY}": many_figures["p99 ms"],
    }


def compare(directory: Path, options: Options) -> report.Report:
    machine.raise_descriptor_limit()
    loads: dict[str, tuple[Load, int]] = {
        "as fast as they are answered": (at_full_speed, options.count(100_000, FEW)),
        f"{PER_S / FEW:.0f} a second each": (at_a_pace, options.count(20_000, FEW)),
    }
    results = []
    with Kafkawire(directory / "kafkawire", OVERRIDES) as broker:
        field = [Contender("kafkawire async", broker, {"flush.policy": "async"})]
        for name, (load, count) in loads.items():
            case = f"1 KiB over {FEW} connections, {name}, beside {LARGE_IN_FLIGHT} x 128 KiB of one"
            once = partial(beside_large, load, count, broker)
            results.append(bench.alternate(case, "p99 ms", field, once, options, BOUND))
        topic = bench.new_topic(field[0], MANY)
        once = partial(many, topic, MANY * max(1, options.count(40_000, MANY) // MANY))
        case, bound = f"1 KiB over {MANY} connections and over {FEW}", f"req/s of {MANY} at least 0.9 x that of {FEW}"
        with Floor(directory / "floor", "async") as floor:
            both = [*field, Contender("floor", floor, {})]
            results.append(bench.alternate(case, f"{MANY} to {FEW}", both, once, options, bound))
        return report.Report(machine.facts(), results, bench.rss_peaks(field))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("fairness", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
