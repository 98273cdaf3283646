"""PySpark 4.2 with its stock kafka source and sink, in batches: the rows, and their splits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark.queries import FIRST_MS, fill, numbers, write
from compat_tests.clients.confluent.clients import Admin, create_topic, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compat_tests.applications.spark.queries import Connector
    from compat_tests.harness.broker import Broker


def test_write_and_read(spark: SparkSession, connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic, partitions=2)
    rows = [(f"k{number}", f"v{number}") for number in range(100)]
    write(spark.createDataFrame(rows, ["key", "value"]), broker, topic)
    frame = connector.reader(broker, subscribe=topic, startingOffsets="earliest", endingOffsets="latest").load()
    found = frame.selectExpr("cast(key as string)", "cast(value as string)", "topic", "partition").collect()
    assert sorted((row.key, row.value) for row in found) == sorted(rows)
    assert {row.topic for row in found} == {topic}
    assert {row.partition for row in found} == {0, 1}


def test_headers_go_both_ways(spark: SparkSession, connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    frame = spark.sql("select 'v' value, array(named_struct('key', 'a', 'value', cast('1' as binary))) headers")
    write(frame, broker, topic)
    (message,) = read(broker, topic, 0, 1)
    assert message.headers() == [("a", b"1")]
    (row,) = connector.reader(broker, subscribe=topic, includeHeaders="true").load().collect()
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("a", b"1")]


def test_read_between_offsets(connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 50)
    between = {"startingOffsets": json.dumps({topic: {"0": 10}}), "endingOffsets": json.dumps({topic: {"0": 20}})}
    frame = connector.reader(broker, assign=json.dumps({topic: [0]}), **between).load()
    assert numbers(frame) == list(range(10, 20))
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(10, 20))


def test_read_between_timestamps(connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 50)
    between = {"startingTimestamp": str(FIRST_MS + 95), "endingTimestamp": str(FIRST_MS + 200)}
    frame = connector.reader(broker, subscribe=topic, **between).load()
    assert numbers(frame) == list(range(10, 20))
    (row,) = frame.selectExpr("min(unix_millis(timestamp)) first", "max(timestampType) kind").collect()
    assert (row.first, row.kind) == (FIRST_MS + 100, 0)


def test_read_between_timestamps_of_each_partition(connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic, partitions=2)
    fill(broker, topic, 0, 50)
    fill(broker, topic, 100, 50, partition=1)
    between = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": FIRST_MS + 95, "1": FIRST_MS + 1200}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": FIRST_MS + 200, "1": FIRST_MS + 1300}}),
    }
    frame = connector.reader(broker, subscribe=topic, **between).load()
    assert numbers(frame) == [*range(10, 20), *range(120, 130)]


def test_a_time_behind_the_last_record(connector: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 10)
    late = {"startingTimestamp": str(FIRST_MS + 1000)}
    with pytest.raises(Exception, match="No offset matched"):
        connector.reader(broker, subscribe=topic, **late).load().collect()
    lenient = connector.reader(broker, subscribe=topic, startingOffsetsByTimestampStrategy="latest", **late)
    assert numbers(lenient.load()) == []


@pytest.mark.parametrize(("option", "value", "tasks"), [("minPartitions", "5", 5), ("maxRecordsPerPartition", "20", 5)])
def test_one_partition_is_split_over_tasks(
    connector: Connector, broker: Broker, topic: str, option: str, value: str, tasks: int
) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 100)
    between = {"startingOffsets": json.dumps({topic: {"0": 0}}), "endingOffsets": json.dumps({topic: {"0": 100}})}
    frame = connector.reader(broker, subscribe=topic, **between, **{option: value}).load()
    assert frame.rdd.getNumPartitions() == tasks
    assert numbers(frame) == list(range(100))


def test_options_that_are_handed_to_the_client(
    spark: SparkSession, connector: Connector, broker: Broker, topic: str
) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 10)
    options = {
        "groupIdPrefix": "spark-readers",
        "kafkaConsumer.pollTimeoutMs": "10000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
        "kafka.isolation.level": "read_committed",
        "kafka.max.partition.fetch.bytes": "100",
    }
    assert numbers(connector.reader(broker, subscribe=topic, **options).load()) == list(range(10))


def test_records_that_were_deleted(connector: Connector, broker: Broker, topic: str) -> None:
    """Deleted records that are asked for by offset are a loss, which fails the query unless `failOnDataLoss` is
    false."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 30)
    assert Admin(broker).delete_records(topic, 10) == 10
    options = {"assign": json.dumps({topic: [0]}), "startingOffsets": json.dumps({topic: {"0": 5}})}
    with pytest.raises(Exception, match=r"failOnDataLoss|KAFKA_DATA_LOSS"):
        connector.reader(broker, failOnDataLoss="true", **options).load().collect()
    assert numbers(connector.reader(broker, failOnDataLoss="false", **options).load()) == list(range(10, 30))
    assert numbers(connector.reader(broker, subscribe=topic).load()) == list(range(10, 30))


def test_the_sink_takes_the_topic_of_each_row(
    spark: SparkSession, connector: Connector, broker: Broker, topic: str
) -> None:
    names = [f"{topic}.{number}" for number in range(2)]
    for name in names:
        create_topic(broker, name)
    rows = [(names[number % 2], str(number).encode()) for number in range(20)]
    write(spark.createDataFrame(rows, ["topic", "value"]), broker, None)
    for parity, name in enumerate(names):
        assert numbers(connector.reader(broker, subscribe=name).load()) == list(range(parity, 20, 2))


def test_read_by_pattern(connector: Connector, broker: Broker, topic: str) -> None:
    for number, name in enumerate((f"{topic}.one", f"{topic}.two")):
        create_topic(broker, name)
        fill(broker, name, number, 1)
    assert numbers(connector.reader(broker, subscribePattern=f"{topic}[.](one|two)").load()) == [0, 1]
