"""How long does a reader wait for the first record of a place in a 1 GB segment that is not in the page cache?

By timestamp (ListOffsets) and by offset (Fetch), after the page cache of the data directory was dropped; once right
after a start, when the broker has no index in memory either, and then again and again. That start makes the JVM cold
too: nothing warms it, and the figures of Apache Kafka are those of its first requests.
"""

from __future__ import annotations

import random
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB
from benchmarks.lib.load import run_load
from benchmarks.lib.wire_requests import (
    batch_of,
    end_offsets,
    fetch_requests,
    list_offsets_frame,
    listed_offsets,
    produce_requests,
)
from compat_tests.harness.wire import WireConnection
from kafkawire.client.load import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.lib.bench import Contender, Options

SEED = 1
FETCH_SIZE_BYTES = 16 * KIB


class Filled:
    """A topic of one segment, stamped by the broker so that its times are spread over it."""

    def __init__(self, contender: Contender, size_bytes: int) -> None:
        self.topic = bench.new_topic(contender, 1, segment_bytes=str(2**31 - 1), message_timestamp_type="LogAppendTime")
        self.first_ms = int(1000 * time.time())
        batch = batch_of(16 * KIB)
        run_load(contender.broker.port, [produce_requests(self.topic, [0], batch, size_bytes // len(batch))], 5)
        self.last_ms = int(1000 * time.time())
        run_load(contender.broker.port, [produce_requests(self.topic, [0], batch, 1)], 1)  # a record at or after it
        self.end = end_offsets(contender.broker.port, self.topic, [0])[0]


def by_time_ms(contender: Contender, data: Filled, timestamp_ms: int) -> float:
    machine.drop_page_cache(contender.broker.data_dir)
    with WireConnection(contender.broker.port) as connection:
        begun_s = time.perf_counter()
        connection.send_frame(list_offsets_frame(data.topic, [0], timestamp_ms))
        reply = connection.receive_frame()
        seconds = time.perf_counter() - begun_s
    ((error, offset),) = listed_offsets(reply, [0])
    if error or not 0 <= offset < data.end:
        raise LoadFailed(f"{contender.name}: no record at {timestamp_ms}: error {error}, offset {offset}")
    return 1000 * seconds


def by_offset_ms(contender: Contender, topic: str, offset: int) -> float:
    machine.drop_page_cache(contender.broker.data_dir)
    return run_load(contender.broker.port, [fetch_requests(topic, [offset], 1, FETCH_SIZE_BYTES)], 1).percentile_ms(1.0)


def once(filled: dict[str, Filled], seeks: int, choice: random.Random, contender: Contender) -> report.Figures:
    """Seek to random places: each contender may have others, because they are many."""
    data = filled[contender.name]
    contender.broker.stop()
    contender.broker.start()
    times = [choice.uniform(0, 1) for _ in range(seeks)]
    offsets = [choice.randrange(data.end - 1) for _ in range(seeks)]
    span_ms = data.last_ms - data.first_ms
    timed = [by_time_ms(contender, data, int(data.first_ms + share * span_ms)) for share in times]
    fetched = [by_offset_ms(contender, data.topic, offset) for offset in offsets]
    return {
        "first by time ms": timed[0],
        "by time p50 ms": statistics.median(timed),
        "by time max ms": max(timed[1:]),
        "first by offset ms": fetched[0],
        "by offset p50 ms": statistics.median(fetched),
        "by offset max ms": max(fetched[1:]),
    }


def compare(directory: Path, options: Options) -> report.Report:
    size_bytes = options.count(10**9, 10**6)
    with bench.both(directory, with_kafka=not options.toy) as field:
        filled = {contender.name: Filled(contender, size_bytes) for contender in field}
        case = f"a segment of {size_bytes / 1e6:.0f} MB, right after a start: the JVM is cold"
        seek = partial(once, filled, options.count(50, 2), random.Random(SEED))
        result = bench.alternate(case, "by offset p50 ms", field, seek, options)
        return report.Report(machine.facts(), [result], bench.rss_peaks(field))


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("cold-seek", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
