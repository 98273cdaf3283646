"""How fast is a log compacted, what does it cost, and how does it slow down producers?

A topic is filled with records that may not be compacted before a certain moment (min.compaction.lag.ms). From then on
the clock runs, until the disk has little more than one record per key; meanwhile a client produces to another topic, or
there is no load.
"""

from __future__ import annotations

import time
from array import array
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, MIB, Contender
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import batch_of, produce_requests
from engine.batches.batch import Record, build_batch
from kafkawire.client.load import Requests, percentile_ms

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Options

CLEANER = {"log.cleaner.backoff.ms": "50"}
BATCH_SIZE_BYTES = 64 * KIB
UNIQUE_BATCHES = 160  # 10 MiB of different keys, sent again and again
SEGMENT_SIZE_BYTES = 16 * MIB
LAG_S = 30.0  # in which the topic has to be filled
DONE_WITHIN_S = 900.0
POLL_S = 0.01
LOAD_S = 1.0  # of produce requests before it compacts, one such load after the other
GLANCE_S = 0.2  # and while it compacts: after each load, the benchmark checks whether it is done
ENDLESS = 1 << 40


def keyed_batches(record_size_bytes: int, count: int, time_ms: int) -> list[bytes]:
    """Batches in which no two records have the same key."""
    rng, each = Random(0), BATCH_SIZE_BYTES // record_size_bytes
    values = [rng.randbytes(record_size_bytes - 40) for _ in range(each)]
    return [
        bytes(
            build_batch(
                [Record(b"key-%012d" % (number * each + place), values[place], time_ms) for place in range(each)]
            )
        )
        for number in range(count)
    ]


def fill(contender: Contender, record_size_bytes: int, total_bytes: int, options: Options) -> tuple[str, float, int]:
    """Fill a topic. Returns its name, the moment from which on it may be compacted, and its expected size
    afterwards."""
    lag_s = 12.0 if options.toy else LAG_S
    ready_s = time.time() + lag_s
    unique = 4 if options.toy else UNIQUE_BATCHES
    batches = keyed_batches(record_size_bytes, unique, round((ready_s - lag_s) * 1000))
    topic = bench.new_topic(
        contender,
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes=str(MIB if options.toy else SEGMENT_SIZE_BYTES),
        min_compaction_lag_ms=str(round(lag_s * 1000)),
        file_delete_delay_ms="0",
    )
    loads = [produce_requests(topic, [0], batch, 1) for batch in batches]
    frames = [load.frames[0] for load in loads]
    run_load(contender.broker.port, [Requests(frames, total_bytes // BATCH_SIZE_BYTES, loads[0].check)], 5)
    left_s = ready_s - time.time()
    assert left_s > 0, f"{contender.name} was not filled within {lag_s} s"
    return topic, time.monotonic() + left_s, sum(map(len, batches))


def size_on_disk(contender: Contender, topic: str) -> int:
    """The size of all segments but the last, by their current names, in bytes."""
    sizes = []
    for path in sorted((contender.broker.data_dir / f"{topic}-0").glob("*.log")):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # replaced just now
            sizes.append(SEGMENT_SIZE_BYTES * 1000)
    return sum(sizes[:-1])


def is_compacted(contender: Contender, topic: str, unique_bytes: int) -> bool:
    return size_on_disk(contender, topic) < 1.5 * unique_bytes


def alone(record_size_bytes: int, total_bytes: int, options: Options, contender: Contender) -> report.Figures:
    """Measure a compaction without other load."""
    topic, ready_s, unique_bytes = fill(contender, record_size_bytes, total_bytes, options)
    dirty_bytes = size_on_disk(contender, topic)
    time.sleep(max(0.0, ready_s - time.monotonic()))
    before_s, begun_s = machine.cpu_s(contender.broker.pid), time.monotonic()
    while not is_compacted(contender, topic, unique_bytes):
        assert time.monotonic() < begun_s + DONE_WITHIN_S, f"{contender.name} does not compact"
        time.sleep(POLL_S)
    seconds = time.monotonic() - begun_s
    cpu_s = machine.cpu_s(contender.broker.pid) - before_s
    bench.delete_topic(contender, topic)
    return {"MB/s": dirty_bytes / 1e6 / seconds, "seconds": seconds, "CPU s/GB": cpu_s / (dirty_bytes / 1e9)}


def under_load(total_bytes: int, connections: int, options: Options, contender: Contender) -> report.Figures:
    """Measure producers at full speed, to another topic, before and during a compaction."""
    other = bench.new_topic(contender, connections)
    batch = batch_of(KIB)

    def produce(seconds: float) -> array[float]:
        loads = [produce_requests(other, [number], batch, ENDLESS) for number in range(connections)]
        return run_load(contender.broker.port, loads, 5, seconds).latencies_s

    topic, ready_s, unique_bytes = fill(contender, KIB, total_bytes, options)
    dirty_bytes = size_on_disk(contender, topic)
    before = produce(GLANCE_S)
    while (left_s := ready_s - time.monotonic()) > 0:
        before += produce(min(LOAD_S, left_s))
    meanwhile = produce(GLANCE_S)
    while not is_compacted(contender, topic, unique_bytes):
        assert time.monotonic() < ready_s + DONE_WITHIN_S, f"{contender.name} does not compact"
        meanwhile += produce(GLANCE_S)
    seconds = time.monotonic() - ready_s
    bench.delete_topic(contender, topic)
    bench.delete_topic(contender, other)
    quiet_ms, busy_ms = percentile_ms(sorted(before), 0.99), percentile_ms(sorted(meanwhile), 0.99)
    return {
        "p99 ms before": quiet_ms,
        "p99 ms": busy_ms,
        "p99 grows by": busy_ms / quiet_ms,
        "compacted MB/s": dirty_bytes / 1e6 / seconds,
    }


def compare(directory: Path, options: Options) -> report.Report:
    total_bytes = 6 * MIB if options.toy else round(512 * MIB * options.scale)
    of_small_bytes = total_bytes if options.toy else total_bytes // 4
    cases = {
        "records of 1 KiB": ("MB/s", partial(alone, KIB, total_bytes, options)),
        "records of 100 bytes": ("MB/s", partial(alone, 100, of_small_bytes, options)),
        "under 20 producers of 1 KiB": ("p99 ms", partial(under_load, total_bytes, 20, options)),
    }
    results = []
    with bench.both(directory, with_kafka=not options.toy, overrides=CLEANER) as field:
        bench.warm(field, options)
        for case, (compared, once) in cases.items():
            results.append(bench.alternate(case, compared, field, once, options))
        return report.Report(machine.facts(), results, bench.rss_peaks(field))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("compaction", __doc__, compare, arguments, alternations=3)


if __name__ == "__main__":
    main()
