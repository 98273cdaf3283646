"""Cost of the remote tier: of copies to it, of reads from it, and for clients of the broker meanwhile.

Beside Apache Kafka with its LocalTieredStorage, a directory on the same disk: kafkawire with a directory, and with a
real S3 server over one. Kafka copies without a sync, kafkawire to a directory with one. Before anything is read from a
tier the page cache of all directories is dropped, and a broker's cache of its tier is much smaller than the reads.

A store that is far away is a proxy that delays each request. It passes on whole messages, which costs milliseconds, and
Apache Kafka's store has no such thing: those rows are of kafkawire only. Each seek is shown with the time of a bare
GET, of as much as the broker asks for, of the same store. With 10,000 partitions: benchmarks.tier.tiered_partitions.
"""

from __future__ import annotations

import itertools
import os
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, MIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.paced_load import run_paced
from benchmarks.lib.tiered_brokers import KafkawireOnS3, in_directory, running, s3, without_tier
from benchmarks.lib.tiered_data import (
    Sizes,
    copying_at_most,
    enter_tier,
    fill,
    fill_cold,
    is_copied,
    read_through,
    wait_until_copied,
)
from benchmarks.lib.wire_requests import batch_of, fetch_requests, produce_requests
from benchmarks.tier import tiered_partitions
from benchmarks.tier.tiered_reading import READERS, SEED, Places, reading
from kafkawire.client.load import percentile_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options
    from benchmarks.lib.tiered_brokers import Tiers
    from compat_tests.harness.kafkawire_broker import Kafkawire
    from compat_tests.harness.s3_server import S3Server

CONNECTIONS, PER_S = 50, 1_000.0  # of produce requests beside uploads
QUOTA_BYTES_PER_S = 80_000_000  # the least rate of copies
ALONE_S, GLANCE_S = 5.0, 0.5  # time without uploads; time between two checks whether they are done
ENDLESS: Final = 1 << 40


def upload(sizes: Sizes, contender: Contender) -> report.Figures:
    """Measure the upload of a whole topic."""
    data = fill(contender, sizes)
    os.sync()
    before_s, begun_s = machine.cpu_s(contender.broker.pid), time.perf_counter()
    enter_tier(contender, data)
    wait_until_copied(contender, data)
    seconds = time.perf_counter() - begun_s
    cpu_s = machine.cpu_s(contender.broker.pid) - before_s
    bench.delete_topic(contender, data.topic)
    return {"MB/s": sizes.sealed_bytes / 1e6 / seconds, "CPU s/GB": cpu_s / (sizes.sealed_bytes / 1e9)}


def full_speed(port: int, topic: str, seconds: float) -> Sequence[float]:
    loads = [produce_requests(topic, [each], batch_of(KIB), ENDLESS) for each in range(CONNECTIONS)]
    return run_load(port, loads, 1, seconds).latencies_s


def at_a_pace(port: int, topic: str, seconds: float) -> Sequence[float]:
    each = max(1, round(seconds * PER_S / CONNECTIONS))
    loads = [produce_requests(topic, [number], batch_of(KIB), each) for number in range(CONNECTIONS)]
    return run_paced(port, loads, PER_S)


def beside_uploads(
    produce: Callable[[int, str, float], Sequence[float]],
    sizes: Sizes,
    alone_s: float,
    quota_bytes_per_s: int | None,
    contender: Contender,
) -> report.Figures:
    """Measure producers before and during the upload of a topic."""
    port, data = contender.broker.port, fill(contender, sizes)
    topic = bench.new_topic(contender, CONNECTIONS)
    produce(port, topic, GLANCE_S)  # partitions that are new are slower
    os.sync()
    alone_ms = percentile_ms(sorted(produce(port, topic, alone_s)), 0.99)
    begun_s, latencies_s = time.perf_counter(), list[float]()
    with copying_at_most(contender, quota_bytes_per_s):
        enter_tier(contender, data)
        latencies_s += produce(port, topic, GLANCE_S)
        while not is_copied(contender, data):
            latencies_s += produce(port, topic, GLANCE_S)
        seconds = time.perf_counter() - begun_s
    for each in (topic, data.topic):
        bench.delete_topic(contender, each)
    p99_ms = percentile_ms(sorted(latencies_s), 0.99)
    return {
        "p99 ms alone": alone_ms,
        "p99 ms": p99_ms,
        "p99 grows by": p99_ms / alone_ms,
        "req/s": len(latencies_s) / seconds,
        "copied MB/s": sizes.sealed_bytes / 1e6 / seconds,
    }


def peaks_mib(broker: Kafkawire, sizes: Sizes, places: Places, *, is_tiered: bool) -> tuple[float, float]:
    """Peaks of a new broker's memory in MiB: after writes and one reader, and after many readers at once."""
    with broker:
        contender = Contender(broker.name, broker, {}, is_synced=True)
        data = fill_cold(contender, sizes) if is_tiered else fill(contender, sizes)
        read_through(contender, data)
        of_one = machine.rss_peak_mib(broker.pid)
        loads = [
            fetch_requests(data.topic, [int(share * sizes.sealed_to) for share in places.sample()], 1, MIB)
            for _ in range(READERS)
        ]
        run_load(broker.port, loads, 1)
        return of_one, machine.rss_peak_mib(broker.pid)


def memory(
    makers: dict[str, Callable[[], Kafkawire]],
    plain: Callable[[], Kafkawire],
    sizes: Sizes,
    places: Places,
    contender: Contender,
) -> report.Figures:
    without = peaks_mib(plain(), sizes, places, is_tiered=False)
    tiered = peaks_mib(makers[contender.name](), sizes, places, is_tiered=True)
    return {
        "RSS MiB without a tier": without[0],
        "RSS MiB": tiered[0],
        "more MiB": tiered[0] - without[0],
        f"more MiB with {READERS} readers": tiered[1] - without[1],
    }


def copying(tiers: Tiers, options: Options) -> list[report.Result]:
    sizes = Sizes(2, 2, MIB) if options.toy else Sizes(4, max(2, round(4 * options.scale)), 64 * MIB)
    case_size = f"{sizes.sealed_bytes / 1e6:.0f} MB of {sizes.partitions} partitions"
    once = partial(upload, sizes)
    results = [bench.alternate(f"{case_size} enter the tier", "MB/s", tiers.field, once, options, "at least 80 MB/s")]
    field = bench.durabilities(tiers.field[:1] if options.toy else tiers.field)
    cases: list[tuple[str, Callable[[int, str, float], Sequence[float]], int | None]] = [
        ("as fast as they are answered", full_speed, None),
        (f"{PER_S:.0f} a second", at_a_pace, None),
        (f"{PER_S:.0f} a second", at_a_pace, QUOTA_BYTES_PER_S),
    ]
    for name, produce, quota in cases:
        pace = "" if quota is None else f", {quota / 1e6:.0f} MB a second at most"
        case = f"1 KiB over {CONNECTIONS} connections, {name}, while {case_size} enter the tier{pace}"
        once = partial(beside_uploads, produce, sizes, 0.2 if options.toy else ALONE_S, quota)
        results.append(bench.alternate(case, "p99 ms", field, once, options, "p99 grows by 1.2 at most"))
    return results


def remembering(directory: Path, server: S3Server, options: Options) -> report.Result:
    numbers = itertools.count()
    makers: dict[str, Callable[[], Kafkawire]] = {
        "kafkawire": lambda: in_directory(directory / f"memory-{next(numbers)}"),
        "kafkawire S3": lambda: KafkawireOnS3(directory / f"memory-{next(numbers)}", server),
    }

    def plain() -> Kafkawire:
        return without_tier(directory / f"memory-{next(numbers)}")

    sizes = Sizes(1, 2, MIB) if options.toy else Sizes(1, max(2, round(8 * options.scale)), 64 * MIB)
    field = [Contender(name, make(), {}, is_synced=True) for name, make in makers.items()]
    once = partial(memory, makers, plain, sizes, Places(Random(SEED), READERS))
    case = f"memory of a broker that was given {sizes.sealed_bytes / 1e6:.0f} MB and read it all"
    return bench.alternate(case, "RSS MiB", field, once, options, "at most 16 MiB more than without a tier")


def compare(directory: Path, options: Options) -> report.Report:
    with s3(directory) as server:
        with running(directory, server, with_kafka=not options.toy) as tiers:
            bench.warm(tiers.field, options)
            results = [*reading(directory, tiers, server, options), *copying(tiers, options)]
            peaks = bench.rss_peaks(tiers.field)
        results.append(remembering(directory, server, options))
    results.append(tiered_partitions.opening(directory, options))
    return report.Report(machine.facts(), results, peaks)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("tiering", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
