"""Spark's stock source and kafkawire's read a topic from offset 0 across tiers, while the broker is killed.

Meanwhile, the topic is written, copied and dropped. With `failOnDataLoss`, a query fails if an offset is not there for
a moment. All of them read the same topic, in turns, because filling it takes longer than reading it.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark.queries import OURS, STOCK, Connector, run_to_end
from compat_tests.features.tiering.brokers import tiered_target
from compat_tests.features.tiering.traffic import SEED, THREADS, WITHIN_S, ReaderRecords, Record, Traffic
from compat_tests.harness.target import TARGET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

CHOICE = random.Random(SEED)
QUERIES = 2  # of each connector, in each test; there is a kill in each
BEFORE, IN_ALL = 3000, 9000  # records of each writer
CALM_MAX_S = 2.0
OPTIONS = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    "kafka.default.api.timeout.ms": "60000",  # a start of Apache Kafka after a kill takes its time
    "kafka.reconnect.backoff.max.ms": "200",
    "maxRecordsPerPartition": "2000",
}
COLUMNS = "partition", "offset", "unix_millis(timestamp) timestamp_ms", "key", "value", "headers"


@pytest.fixture
def connectors(spark: SparkSession) -> list[Connector]:
    """The connectors: Spark's, kafkawire's, and kafkawire's past the broker. Apache Kafka does not list sealed
    segments."""
    found = [Connector(spark, STOCK), Connector(spark, OURS)]
    return found if TARGET == "kafka" else [*found, Connector(spark, OURS, goes_past_brokers=True)]


@pytest.fixture
def traffic(topic: str, tmp_path: Path) -> Iterator[Traffic]:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    with ExitStack() as stack:
        broker = stack.enter_context(tiered_target(tmp_path))
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        yield stack.enter_context(Traffic(broker, topic, pool, BEFORE, IN_ALL))


@contextmanager
def killed(traffic: Traffic) -> Iterator[None]:
    """Kill the broker during the block, at a random time: sometimes while offsets are asked for, mostly later."""
    after_s = CHOICE.uniform(0, CALM_MAX_S)

    def kill() -> None:
        time.sleep(after_s)
        traffic.kill()

    with ThreadPoolExecutor(1) as killer:
        killing = killer.submit(kill)
        yield
        killing.result()


def loaded(source: DataFrameReader, traffic: Traffic) -> ReaderRecords:
    return seen_in(source.load(), traffic)


def seen_in(frame: DataFrame, traffic: Traffic) -> ReaderRecords:
    """The rows of a frame, in the order of their offsets: tasks have no order."""
    seen = ReaderRecords(traffic.history)
    for row in sorted(frame.selectExpr(*COLUMNS).collect(), key=lambda row: (row.partition, row.offset)):
        headers = tuple((header.key, known(header.value)) for header in row.headers)
        found = Record(row.timestamp_ms, known(row.key), known(row.value), headers)
        seen.add(row.partition, row.offset, found)
    return seen


def known(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_batches(connectors: list[Connector], traffic: Traffic) -> None:
    """Batches with kills, up to the last stable offset at their begin. A batch without kills shows that no record is
    lost, so records that are missing in the others were passed over."""
    sources = [connector.reader(traffic.broker, subscribe=traffic.topic, **OPTIONS) for connector in connectors]
    batches: list[tuple[list[int], ReaderRecords]] = []
    for source in sources * QUERIES:
        least = traffic.stable_ends()
        with killed(traffic):
            batches.append((least, loaded(source, traffic)))
    traffic.complete()
    for source in sources:
        seen_in(source.load(), traffic).check()
    for least, seen in batches:
        seen.check(least)


def test_available_now(spark: SparkSession, connectors: list[Connector], traffic: Traffic, tmp_path: Path) -> None:
    """Runs with kills, each going on where the one before ended, in many small batches: in all each record once. A
    batch without kills shows that no record is lost, so missing records were passed over by the stream."""
    options = {**OPTIONS, "subscribe": traffic.topic, "maxOffsetsPerTrigger": "5000"}
    frames = [connector.stream(traffic.broker, **options).load() for connector in connectors]
    outputs = [tmp_path / f"output {number}" for number in range(len(connectors))]
    sinks = [copies(frame, output) for frame, output in zip(frames, outputs, strict=True)]
    for sink in sinks * QUERIES:
        with killed(traffic):
            run_to_end(sink, WITHIN_S)
    traffic.complete()
    seen_in(connectors[0].reader(traffic.broker, subscribe=traffic.topic, **OPTIONS).load(), traffic).check()
    for sink, frame, output in zip(sinks, frames, outputs, strict=True):
        run_to_end(sink, WITHIN_S)
        seen_in(spark.read.schema(frame.schema).parquet(str(output)), traffic).check()


def copies(frame: DataFrame, output: Path) -> DataStreamWriter:
    """A query that copies the records that are there at its start."""
    sink = frame.writeStream.format("parquet").option("path", str(output))
    return sink.option("checkpointLocation", f"{output}-checkpoint")
