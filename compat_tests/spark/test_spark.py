"""PySpark 4.2 with its stock kafka source and sink: batch, and a stream that goes on from its checkpoint.

One session for the file: it takes longer to start than all queries together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from compat_tests.confluent.clients import create_topic, flush, producer, read
from compat_tests.harness.requirements import need_spark_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from compat_tests.harness.broker import Broker

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with the four jars, no user interface, everything on 127.0.0.1."""
    jars = need_spark_jars()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    builder = SparkSession.builder.master("local[2]").appName("compat")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def reader(spark: SparkSession, broker: Broker, **options: str) -> DataFrameReader:
    """A batch reader that fails, instead of waiting for minutes, when the broker does not answer."""
    limits = {"kafka.request.timeout.ms": "20000", "kafka.default.api.timeout.ms": "20000"}
    return spark.read.format("kafka").options(**{"kafka.bootstrap.servers": broker.bootstrap, **limits, **options})


def write(frame: DataFrame, broker: Broker, topic: str) -> None:
    """The sink; its Java producer is idempotent."""
    settings = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    frame.write.format("kafka").options(**settings).save()


def fill(broker: Broker, topic: str, first: int, count: int) -> None:
    """Records numbered from `first`, one every 10 ms, all in partition 0."""
    client = producer(broker)
    for number in range(first, first + count):
        client.produce(topic, str(number).encode(), partition=0, timestamp=FIRST_MS + 10 * number)
    flush(client)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def test_batch_write_and_read(spark: SparkSession, broker: Broker, topic: str) -> None:
    create_topic(broker, topic, partitions=2)
    rows = [(f"k{number}", f"v{number}") for number in range(100)]
    write(spark.createDataFrame(rows, ["key", "value"]), broker, topic)
    frame = reader(spark, broker, subscribe=topic, startingOffsets="earliest", endingOffsets="latest").load()
    found = frame.selectExpr("cast(key as string)", "cast(value as string)", "topic", "partition").collect()
    assert sorted((row.key, row.value) for row in found) == sorted(rows)
    assert {row.topic for row in found} == {topic}
    assert {row.partition for row in found} == {0, 1}


def test_headers_go_both_ways(spark: SparkSession, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    frame = spark.sql("select 'v' value, array(named_struct('key', 'a', 'value', cast('1' as binary))) headers")
    write(frame, broker, topic)
    (message,) = read(broker, topic, 0, 1)
    assert message.headers() == [("a", b"1")]
    (row,) = reader(spark, broker, subscribe=topic, includeHeaders="true").load().collect()
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("a", b"1")]


def test_batch_read_between_offsets(spark: SparkSession, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 50)
    between = {"startingOffsets": json.dumps({topic: {"0": 10}}), "endingOffsets": json.dumps({topic: {"0": 20}})}
    frame = reader(spark, broker, assign=json.dumps({topic: [0]}), **between).load()
    assert numbers(frame) == list(range(10, 20))
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(10, 20))


def test_batch_read_between_timestamps(spark: SparkSession, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 50)
    between = {"startingTimestamp": str(FIRST_MS + 95), "endingTimestamp": str(FIRST_MS + 200)}
    frame = reader(spark, broker, subscribe=topic, **between).load()
    assert numbers(frame) == list(range(10, 20))
    (row,) = frame.selectExpr("min(unix_millis(timestamp)) first", "max(timestampType) kind").collect()
    assert (row.first, row.kind) == (FIRST_MS + 100, 0)


def test_batch_read_by_pattern(spark: SparkSession, broker: Broker, topic: str) -> None:
    for number, name in enumerate((f"{topic}.one", f"{topic}.two")):
        create_topic(broker, name)
        fill(broker, name, number, 1)
    assert numbers(reader(spark, broker, subscribePattern=f"{topic}[.](one|two)").load()) == [0, 1]


def test_stream_goes_on_from_its_checkpoint(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Stopped, more data, started again: exactly the new rows, also for a query that keeps running."""
    create_topic(broker, topic)
    output, checkpoint = str(tmp_path / "output"), str(tmp_path / "checkpoint")
    total = 0
    for count in (100, 50, 1):
        fill(broker, topic, total, count)
        total += count
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        stream = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
        sink = stream.select("value").writeStream.format("parquet").option("path", output)
        query = sink.option("checkpointLocation", checkpoint).start()
        try:
            query.processAllAvailable()
            fill(broker, topic, total, 10)
            total += 10
            query.processAllAvailable()
        finally:
            query.stop()
        assert numbers(spark.read.parquet(output)) == list(range(total))


def test_stream_with_available_now_reads_in_steps(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A rate limit splits what is there into several batches; each record comes once."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 95)
    seen: list[int] = []
    batches: list[int] = []

    def collect(frame: DataFrame, _: int) -> None:
        found = numbers(frame)
        seen.extend(found)
        batches.append(len(found))

    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", "20").load()
    sink = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    deadline = time.monotonic() + 60
    while query.isActive:
        assert time.monotonic() < deadline, "the query does not end"
        query.awaitTermination(1)
    assert seen == list(range(95))
    assert len(batches) == 5
