"""How fast does Spark read and write topics, by its own connector for Kafka and by kafkawire's, and at which cost?

Batch jobs of one local session on two cores, which the broker shares. All columns of all rows are read, and go nowhere;
written rows were cached before. Spark's CPU is that of its JVM with all workers in Python. The stock source is measured
as shipped and with two settings, without which it asks for the end of the log at every 500 rows; kafkawire's also past
a kafkawire broker, from its sealed files. A GB is one of record batches as they are stored. Before a case is measured
each connector does all of it once: the JVM gets warm.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.lib import bench, machine, report
from benchmarks.lib.bench import KIB, Contender
from benchmarks.spark.spark_decode import LOG_BYTES, SMALL, TOY_LOG_BYTES, Case, log_of, store
from compat_tests.applications.spark.queries import OURS, STOCK, sealed_files
from compat_tests.applications.spark.session import local_session
from compat_tests.harness.apache_kafka import STOCK_JVM, ApacheKafka
from compat_tests.harness.kafkawire_broker import Kafkawire
from compat_tests.harness.requirements import need_spark_jars
from engine.batches.batch import Codec
from spark_connectors.records.batches import batches_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.lib.bench import Options
    from compat_tests.harness.broker import Broker

COMPARED: Final = "k rows/s"
PARTITIONS: Final = 2  # one for each core
MEMORY: Final = "2g"
ROWS_WRITTEN: Final = 1_000_000
READ_BOUND: Final = "at least 2 x stock, 0.9 x tuned, broker CPU at most 0.5 s/GB"
WRITE_BOUND: Final = "at least 1 x stock"


@dataclass(frozen=True)
class Connector:
    """A data source of Spark's, and how it is set."""

    name: str
    format: str
    settings: Mapping[str, str] = field(default_factory=dict)


AS_SHIPPED: Final = Connector("stock", STOCK)
OF_OURS: Final = Connector("kafkawire", OURS)
READERS: Final = (
    AS_SHIPPED,
    Connector(
        "stock tuned", STOCK, {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
    ),
    OF_OURS,
)
SEGMENT_BYTES: Final = 16 << 20  # of which all but the last are sealed


def readers_of(broker: Broker) -> tuple[Connector, ...]:
    """The connectors for reads; with a kafkawire broker also kafkawire's connector on sealed files."""
    if not isinstance(broker, Kafkawire):
        return READERS
    return (*READERS, Connector("kafkawire, sealed files", OURS, sealed_files(broker)))


WRITERS: Final = (
    AS_SHIPPED,
    Connector("stock tuned", STOCK, {"kafka.linger.ms": "20", "kafka.batch.size": str(128 << 10)}),
    OF_OURS,
)


@dataclass(frozen=True)
class Reading:
    """A read of a topic that has about so many rows, to a sink of Spark's."""

    log: Case
    rows: int
    sink: str = "noop"


READINGS: Final = (
    Reading(Case("100 B", 100, SMALL, bound=READ_BOUND), 4_000_000),
    Reading(Case("100 B, zstd", 100, SMALL, Codec.ZSTD, bound=READ_BOUND), 4_000_000),
    Reading(Case("1 KiB", KIB, SMALL, bound=READ_BOUND), 1_000_000),
    Reading(Case("1 KiB, zstd", KIB, SMALL, Codec.ZSTD, bound=READ_BOUND), 1_000_000),
    Reading(Case("100 B to Parquet", 100, SMALL), 2_000_000, "parquet"),
)


@dataclass(frozen=True)
class Cost:
    """The cost of a job: elapsed seconds, and CPU seconds."""

    seconds: float
    spark_s: float
    broker_s: float


@dataclass(frozen=True)
class Site:
    """The session of the jobs, their broker, and a directory for their files."""

    spark: SparkSession
    jvm_pid: int
    broker: Broker
    directory: Path

    @property
    def contender(self) -> Contender:
        return Contender(self.broker.name, self.broker, {})

    def frame(self, connector: Connector, topic: str) -> DataFrame:
        """The committed records of a topic, by a reader that plans it again."""
        reader = self.spark.read.format(connector.format).option("kafka.bootstrap.servers", self.broker.bootstrap)
        reader = reader.options(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        return reader.options(**connector.settings).load()

    def measured(self, job: Callable[[], None], rows: int, size_bytes: int) -> report.Figures:
        """Run a job. Returns its figures, with the CPU of Spark and of the broker."""
        cost = self.cost_of(job)
        return {
            COMPARED: rows / 1e3 / cost.seconds,
            "Spark CPU s/M rows": cost.spark_s / (rows / 1e6),
            "broker CPU s/GB": cost.broker_s / (size_bytes / 1e9),
        }

    def cost_of(self, job: Callable[[], None]) -> Cost:
        spark_s, broker_s, begun_s = self._spark_cpu_s(), machine.cpu_s(self.broker.pid), time.perf_counter()
        job()
        seconds = time.perf_counter() - begun_s
        return Cost(seconds, self._spark_cpu_s() - spark_s, machine.cpu_s(self.broker.pid) - broker_s)

    def _spark_cpu_s(self) -> float:
        return machine.tree_cpu_s(self.jvm_pid)


@dataclass(frozen=True)
class Topic:
    """A topic to read."""

    name: str
    rows: int
    size_bytes: int


def filled(site: Site, reading: Reading, options: Options) -> Topic:
    """A topic with the same batches again and again, alike in all partitions."""
    batches = log_of(reading.log, TOY_LOG_BYTES if options.toy else LOG_BYTES)
    rows = PARTITIONS * sum(batch.records for batch in batches_of(b"".join(batches)))
    times = 1 if options.toy else max(1, round(reading.rows * options.scale / rows))
    name = bench.new_topic(site.contender, PARTITIONS, segment_bytes=str(SEGMENT_BYTES))
    for partition in range(PARTITIONS):
        store(site.broker.port, name, batches, partition=partition, times=times)
    return Topic(name, times * rows, times * PARTITIONS * sum(map(len, batches)))


def read(site: Site, topic: Topic, sink: str, connector: Connector) -> report.Figures:
    """Read all columns of a topic."""
    writer = site.frame(connector, topic.name).write.format(sink).mode("overwrite")
    return site.measured(partial(writer.save, str(site.directory / "read")), topic.rows, topic.size_bytes)


def run_reading(site: Site, reading: Reading, options: Options) -> report.Result:
    topic = filled(site, reading, options)
    readers = readers_of(site.broker)
    for connector in readers:
        count = site.frame(connector, topic.name).count()
        assert count == topic.rows, f"{connector.name} has read {count} rows of {topic.rows}"
        read(site, topic, reading.sink, connector)
    case = f"read {topic.rows:,} rows of {reading.log.name}, {site.broker.name}"
    result = bench.alternate(
        case, COMPARED, readers, partial(read, site, topic, reading.sink), options, reading.log.bound
    )
    bench.delete_topic(site.contender, topic.name)
    return result


def cached(spark: SparkSession, count: int) -> DataFrame:
    """Rows of 100 bytes, made before the measurement."""
    columns = "lpad(id, 8, '0') key", "left(repeat(sha1(cast(id as string)), 3), 80) value"
    frame = spark.range(0, count, 1, PARTITIONS).selectExpr(*columns).persist()
    assert frame.count() == count
    return frame


def write(site: Site, rows: DataFrame, count: int, connector: Connector) -> report.Figures:
    """Write the rows to a new topic, and check their number."""
    topic = bench.new_topic(site.contender, PARTITIONS)
    settings = {"topic": topic, "stagingLocation": str(site.directory), **connector.settings}
    writer = rows.write.format(connector.format).option("kafka.bootstrap.servers", site.broker.bootstrap)
    figures = site.measured(writer.options(**settings).mode("append").save, count, count * 100)
    found = site.frame(READERS[1], topic).count()
    assert found == count, f"{connector.name} has written {found} rows of {count}"
    bench.delete_topic(site.contender, topic)
    return figures


def run_writing(site: Site, options: Options) -> report.Result:
    count = options.count(ROWS_WRITTEN, 1_000)
    rows = cached(site.spark, count)
    for connector in WRITERS:
        write(site, rows, count, connector)
    case = f"write {count:,} rows of 100 B, {site.broker.name}"
    result = bench.alternate(case, COMPARED, WRITERS, partial(write, site, rows, count), options, WRITE_BOUND)
    rows.unpersist()
    return result


def compare(directory: Path, options: Options) -> report.Report:
    """A toy run reads one topic, and leaves out Apache Kafka, which takes long to start."""
    with local_session(need_spark_jars(), directory / "spark", MEMORY) as spark:
        jvm_pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        with Kafkawire(directory / "kafkawire") as broker:
            site = Site(spark, jvm_pid, broker, directory)
            results = [run_reading(site, reading, options) for reading in READINGS[: 1 if options.toy else None]]
            results.append(run_writing(site, options))
        if not options.toy:
            with ApacheKafka(directory / "kafka", bench.KAFKA_OVERRIDES, jvm=STOCK_JVM) as kafka:
                site = Site(spark, jvm_pid, kafka, directory)
                bench.warm([site.contender], options)
                results.append(run_reading(site, READINGS[0], options))
                results.append(run_writing(site, options))
    return report.Report(machine.facts(), results)


def main(arguments: Sequence[str] | None = None) -> None:
    bench.run("spark", __doc__, compare, arguments)


if __name__ == "__main__":
    main()
