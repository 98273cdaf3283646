"""Spark's stock source, and ours, read a topic from offset 0 across tiers: it is written, copied, dropped meanwhile,
its broker killed. With `failOnDataLoss`, so that a query fails if an offset is not there for a moment.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.target import TARGET
from compat_tests.spark.queries import OURS, STOCK, Connector, await_end
from compat_tests.tiering.brokers import tiered_target
from compat_tests.tiering.traffic import SEED, THREADS, WITHIN_S, Record, Seen, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


CHOICE = random.Random(SEED)
QUERIES, KILLS = 2, 2  # of each test, and during each query
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


@pytest.fixture(params=["stock", "kafkawire", "past the broker"])
def connector(request: pytest.FixtureRequest, spark: SparkSession) -> Connector:
    """Each test for all three."""
    if request.param == "stock":
        return Connector(spark, STOCK)
    goes_past_brokers = request.param == "past the broker"
    if goes_past_brokers and TARGET == "kafka":
        pytest.skip("Apache Kafka does not tell what is sealed")
    return Connector(spark, OURS, goes_past_brokers=goes_past_brokers)


@pytest.fixture
def traffic(topic: str, tmp_path: Path) -> Iterator[Traffic]:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    with ExitStack() as stack:
        broker = stack.enter_context(tiered_target(tmp_path))
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        yield stack.enter_context(Traffic(broker, topic, pool))


@contextmanager
def kills(traffic: Traffic) -> Iterator[None]:
    """Of the broker, beside what is done here; at random, so that some come while offsets are asked for, most later."""

    def kill() -> None:
        for _ in range(KILLS):
            time.sleep(CHOICE.uniform(0, CALM_MAX_S))
            traffic.kill()

    with ThreadPoolExecutor(1) as killer:
        killing = killer.submit(kill)
        yield
        killing.result()


def seen_in(frame: DataFrame, traffic: Traffic) -> Seen:
    """Its rows in the order of their offsets: of tasks none is first."""
    seen = Seen(traffic.history)
    for row in sorted(frame.selectExpr(*COLUMNS).collect(), key=lambda row: (row.partition, row.offset)):
        headers = tuple((header.key, known(header.value)) for header in row.headers)
        found = Record(row.timestamp_ms, known(row.key), known(row.value), headers)
        seen.add(row.partition, row.offset, found)
    return seen


def known(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def test_a_batch(connector: Connector, traffic: Traffic) -> None:
    """Again and again, up to where the topic is stable when it begins. Before these are looked at, one in calm tells
    that nothing is lost: so what they lack they have passed over.
    """
    source = connector.reader(traffic.broker, subscribe=traffic.topic, **OPTIONS)
    batches: list[tuple[list[int], Seen]] = []
    for _ in range(QUERIES):
        least = traffic.stable_ends()
        with kills(traffic):
            batches.append((least, seen_in(source.load(), traffic)))
    traffic.complete()
    seen_in(source.load(), traffic).check()
    for least, seen in batches:
        seen.check(least)


def test_available_now(spark: SparkSession, connector: Connector, traffic: Traffic, tmp_path: Path) -> None:
    """Again and again, each going on where the one before ended, in many small batches: in all each record once. What
    is not lost, as a batch in calm tells, the stream has passed over.
    """
    options = {**OPTIONS, "maxOffsetsPerTrigger": "5000"}
    source = connector.stream(traffic.broker, subscribe=traffic.topic, **options).load()
    output = str(tmp_path / "output")
    sink = source.writeStream.format("parquet").option("path", output)
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    for _ in range(QUERIES):
        with kills(traffic):
            await_end(sink.start(), WITHIN_S)
    traffic.complete()
    await_end(sink.start(), WITHIN_S)
    seen_in(connector.reader(traffic.broker, subscribe=traffic.topic, **OPTIONS).load(), traffic).check()
    seen_in(spark.read.schema(source.schema).parquet(output), traffic).check()
