"""How much is saved when Spark reads sealed segments past the broker, from their files?

A scan of sealed segments, by Spark's own source and by kafkawire's that fetches: the work of the broker. One slice of
time out of 24 equal ones, by a filter: the part of the topic that is read. The filter is on the append time of the
broker, as it is in order; the slices are as long as writing them takes. And one partition divided among 1, 2 and 4
tasks of a session that has two cores.

Batch jobs, all columns, to nowhere, on the cores that the broker shares. Read bytes are those that all processes of
Spark have asked the kernel for, from files and from connections. For reads past the broker these are twice as many: the
workers in Python read a file, and the JVM their rows.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB
from benchmarks.spark.spark import AS_SHIPPED, COMPARED, MEMORY, OF_OURS, SEGMENT_BYTES, Connector, Site
from benchmarks.spark.spark_decode import LOG_BYTES, SMALL, TOY_LOG_BYTES, Case, log_of, store
from compat_tests.applications.spark.queries import OURS, fetches, sealed_files
from compat_tests.applications.spark.session import local_session
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_spark_jars
from spark_connectors.records.batches import batches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from benchmarks.lib.bench import Options

GB: Final = 1_000_000_000
SLICES: Final = 24
SLICE_SEGMENTS: Final = 4
SLICE_SEGMENT_BYTES: Final = 8 << 20
TASKS: Final = (1, 2, 4)
LOG: Final = Case("1 KiB", KIB, SMALL)
SCAN_BOUND: Final = "past the broker: no Fetch, 2 % of a core"
SLICE_BOUND: Final = "past the broker: at most 1/12 of the topic's bytes"


@dataclass(frozen=True)
class Topic:
    """A topic of one partition. `ends`: the offset behind its sealed segments; `borders_ms`: the times at which its
    parts were begun, and the time at which it was full."""

    name: str
    rows: int
    size_bytes: int
    ends: str
    borders_ms: tuple[int, ...]


def past(site: Site, **more: str) -> Connector:
    assert isinstance(site.broker, Kafkawire)
    return Connector("kafkawire, sealed files", OURS, {**sealed_files(site.broker), **more})


def filled(site: Site, parts: int, part_bytes: int, options: Options, **config: str) -> Topic:
    """A topic with so many parts. Records in the active segment are not read."""
    batches = log_of(LOG, TOY_LOG_BYTES if options.toy else LOG_BYTES)
    rows = sum(batch.records for batch in batches_of(b"".join(batches)))
    size_bytes = sum(map(len, batches))
    times = max(1, round(part_bytes / size_bytes))
    name = bench.new_topic(site.contender, 1, **config)
    borders_ms = []
    for _ in range(parts):
        borders_ms.append(_now_ms())
        store(site.broker.port, name, batches, times=times)
        time.sleep(0.01)  # two parts share no millisecond
    borders_ms.append(_now_ms())
    rows, size_bytes = parts * times * rows, parts * times * size_bytes
    return Topic(name, rows, size_bytes, json.dumps({name: {"0": rows}}), tuple(borders_ms))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def sealed_only(site: Site, topic: Topic, options: Options) -> Topic:
    """The topic up to the last offset that is certainly in a full segment, by the bytes of a row."""
    if options.toy:
        return topic
    row_bytes = topic.size_bytes / topic.rows
    rows = int((topic.size_bytes // SEGMENT_BYTES - 1) * (SEGMENT_BYTES / row_bytes) * 0.98)
    ends = json.dumps({topic.name: {"0": rows}})
    return Topic(topic.name, rows, int(rows * row_bytes), ends, topic.borders_ms)


class Reads:
    """Reads of one topic."""

    def __init__(
        self, site: Site, topic: Topic, wanted: Callable[[DataFrame], DataFrame] = lambda frame: frame
    ) -> None:
        self._site = site
        self._topic = topic
        self._wanted = wanted

    def frame(self, connector: Connector) -> DataFrame:
        ended = Connector(connector.name, connector.format, {**connector.settings, "endingOffsets": self._topic.ends})
        return self._wanted(self._site.frame(ended, self._topic.name))

    def once(self, rows: int, connector: Connector) -> report.Figures:
        """Measure a read of the wanted rows. `rows`: their number."""
        assert isinstance(self._site.broker, Kafkawire)
        job = self.frame(connector).write.format("noop").mode("overwrite").save
        asked, read_bytes = fetches(self._site.broker), machine.tree_read_bytes(self._site.jvm_pid)
        cost = self._site.cost_of(job)
        read_bytes = machine.tree_read_bytes(self._site.jvm_pid) - read_bytes
        return {
            COMPARED: rows / 1e3 / cost.seconds,
            "Spark CPU s": cost.spark_s,
            "broker CPU %": 100 * cost.broker_s / cost.seconds,
            "Fetches": fetches(self._site.broker) - asked,
            "of the topic's bytes": read_bytes / self._topic.size_bytes,
        }


def alternated(
    case: str, reads: Reads, connectors: Sequence[Connector], options: Options, bound: str = ""
) -> report.Result:
    """Alternate over the connectors after a warm run of each, and check that all find the same number of rows."""
    (rows,) = {reads.frame(connector).count() for connector in connectors}
    return bench.alternate(f"{case}: {rows:,} rows", COMPARED, connectors, partial(reads.once, rows), options, bound)


def scan(site: Site, options: Options) -> report.Result:
    full = filled(site, 1, options.count(GB, 1), options, segment_bytes=str(SEGMENT_BYTES))
    reads = Reads(site, sealed_only(site, full, options))
    return alternated("scan of sealed segments", reads, (AS_SHIPPED, OF_OURS, past(site)), options, SCAN_BOUND)


def slice_of_time(site: Site, options: Options) -> report.Result:
    config: Mapping[str, str] = {
        "segment_bytes": str(SLICE_SEGMENT_BYTES),
        "message_timestamp_type": "LogAppendTime",
    }
    part_bytes = options.count(SLICE_SEGMENTS * SLICE_SEGMENT_BYTES, 1)
    topic = filled(site, SLICES, part_bytes, options, **config)
    since_ms, before_ms = list(pairwise(topic.borders_ms))[SLICES // 2]
    times = f"timestamp >= timestamp_millis({since_ms}) and timestamp < timestamp_millis({before_ms})"
    reads = Reads(site, topic, lambda frame: frame.where(times))
    pushed = past(site, pushDownPredicate="true")
    return alternated("a slice of 24", reads, (AS_SHIPPED, OF_OURS, pushed), options, SLICE_BOUND)


def tasks(site: Site, options: Options) -> report.Result:
    full = filled(site, 1, options.count(GB, 1), options, segment_bytes=str(SEGMENT_BYTES))
    topic = sealed_only(site, full, options)
    connectors = []
    for count in TASKS:
        divided = past(site, **{"segments.splitBytes": str(-(-topic.size_bytes // count))})
        connectors.append(Connector(f"{count} tasks", divided.format, divided.settings))
    return alternated("one partition", Reads(site, topic), connectors, options)


def compare(directory: Path, options: Options) -> report.Report:
    """Compare kafkawire alone: no other broker lists sealed segments."""
    with local_session(need_spark_jars(), directory / "spark", MEMORY) as spark:
        jvm_pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        with Kafkawire(directory / "kafkawire") as broker:
            site = Site(spark, jvm_pid, broker, directory)
            results = [measure(site, options) for measure in (scan, slice_of_time, tasks)]
    return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("spark-segments", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
