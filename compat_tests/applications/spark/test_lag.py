"""Consumer groups of streaming queries for monitoring tools, with Spark's own source and with kafkawire's."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.applications.spark.queries import DONE_WITHIN_S, OURS, STOCK, Connector, await_end, fill, running
from compat_tests.clients.confluent.clients import (
    TIMEOUT_S,
    Admin,
    commit,
    create_topic,
    new_consumer,
    wait_until,
    with_consumer,
)
from compat_tests.features.cli.commands import document
from compat_tests.features.groups.test_consumer_groups import CONSUMER_GROUPS, table
from compat_tests.harness.tools import java_tool
from spark_connectors.lag import LagReporter
from spark_connectors.progress import groups as progress_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from compat_tests.harness.broker import Broker

IDLE_EVENTS = "spark.sql.streaming.noDataProgressEventInterval"


@contextmanager
def reporting(spark: SparkSession, broker: Broker, *arguments: str, **settings: Any) -> Iterator[LagReporter]:
    with LagReporter(broker.bootstrap, *arguments, **settings) as lag:
        spark.streams.addListener(lag)
        try:
            yield lag
        finally:
            spark.streams.removeListener(lag)


def writer(frame: DataFrame, name: str, directory: Path) -> DataStreamWriter:
    sink = frame.select("value").writeStream.format("noop").queryName(name)
    return sink.option("checkpointLocation", str(directory / "checkpoint"))


def committed(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    """The committed offsets of a group, on a broker that has begun to coordinate groups."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    rows = found.result(TIMEOUT_S).topic_partitions
    return {(row.topic, row.partition): row.offset for row in rows}


def test_tools_see_the_lag(connector: Connector, broker: Broker, topic: str, tmp_path: Path) -> None:
    """The lag of a query that ends, which Spark reports late."""
    create_topic(broker, topic, partitions=2)
    fill(broker, topic, 0, 30)
    frame = connector.stream(broker, subscribe=topic, maxOffsetsPerTrigger="10").load()
    with reporting(connector.spark, broker) as lag:
        for end in (30, 35):
            fill(broker, topic, 0, end - 30, partition=1)
            query = writer(frame, topic, tmp_path).trigger(availableNow=True).start()
            await_end(query)
            assert lag.drain(query, timeout_s=TIMEOUT_S)
            assert committed(broker, f"spark-{topic}") == {(topic, 0): 30, (topic, 1): end - 30}
    fill(broker, topic, 30, 7)
    said = java_tool(CONSUMER_GROUPS, "--bootstrap-server", broker.bootstrap, "--describe", "--group", f"spark-{topic}")
    rows = {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in table(said)}
    assert rows == {"0": ("30", "37", "7"), "1": ("5", "5", "0")}
    (ours,) = document(broker, "groups", "lag", f"spark-{topic}")
    assert (ours["state"], ours["lag"]) == ("Empty", 7)


def test_an_idle_query_stays_known(
    connector: Connector, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle query commits again: brokers forget offsets that are not committed for long. Here the test deletes
    them."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 10)
    group = f"group-of-{topic}"
    connector.spark.conf.set(IDLE_EVENTS, "100")
    try:
        with (
            reporting(connector.spark, broker, group) as lag,
            running(writer(connector.stream(broker, subscribe=topic).load(), topic, tmp_path)),
        ):
            wait_until(lambda: committed(broker, group) == {(topic, 0): 10}, "nothing is committed", DONE_WITHIN_S)
            assert not lag.drain(timeout_s=0.5), "the query has not ended"
            assert lag.metrics().commits == 1
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
            admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
            assert committed(broker, group) == {}
            monkeypatch.setattr(progress_groups, "REFRESH_S", 0.0)
            wait_until(lambda: committed(broker, group) == {(topic, 0): 10}, "it stays forgotten", DONE_WITHIN_S)
        assert lag.metrics().failures == 0
    finally:
        connector.spark.conf.unset(IDLE_EVENTS)


@pytest.mark.parametrize("connector", [OURS], indirect=True)
def test_a_broker_that_is_away_for_a_while(
    connector: Connector,
    broker: Broker,
    own_broker: Broker,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another broker than that of the records coordinates the groups, so that there is something to commit
    meanwhile."""
    create_topic(broker, topic)
    create_topic(own_broker, topic)
    fill(broker, topic, 0, 10)
    with_consumer(
        own_broker, lambda consumer: commit(consumer, TopicPartition(topic, 0, 0))
    )  # it begins to keep groups
    frame = connector.stream(broker, subscribe=topic).load()

    def is_told(count: int) -> bool:
        return lag.metrics().committed.get(f"spark-{topic}") == {(topic, 0): count}

    quick = {"kafka.default.api.timeout.ms": "3000"}
    with reporting(connector.spark, own_broker, options=quick) as lag, running(writer(frame, topic, tmp_path)) as query:
        wait_until(lambda: is_told(10), "not told", DONE_WITHIN_S)
        own_broker.kill()
        fill(broker, topic, 10, 10)
        wait_until(lambda: lag.metrics().failures >= 2, "nothing is tried", DONE_WITHIN_S)
        assert query.isActive
        own_broker.start()
        wait_until(lambda: is_told(20), "not told", DONE_WITHIN_S)
        fill(broker, topic, 20, 1)
        query.processAllAvailable()
        query.stop()
        assert lag.drain(timeout_s=TIMEOUT_S)
    assert committed(own_broker, f"spark-{topic}") == {(topic, 0): 21}
    said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(said) % 2 == 0, said  # other delays are logged as well
    assert "will be later: given up after" in said[0]
    assert all("will be later" in one for one in said[::2]), said
    assert {*said[1::2]} == {"offsets are committed again"}


@pytest.mark.parametrize("connector", [STOCK], indirect=True)
def test_a_group_that_has_members(
    connector: Connector, broker: Broker, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The group refuses commits while it has members, which is logged once; the query goes on, and commits after they
    left."""
    create_topic(broker, topic)
    group = f"group-of-{topic}"
    fill(broker, topic, 0, 3)
    frame = connector.stream(broker, subscribe=topic, maxOffsetsPerTrigger="1").load()
    consumer = new_consumer(broker, group_id=group)
    with reporting(connector.spark, broker, group_id=group) as lag:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "it is no member")
        query = writer(frame, topic, tmp_path).trigger(availableNow=True).start()
        await_end(query)
        assert not lag.drain(query, timeout_s=TIMEOUT_S)
        assert f"{topic}-0: UNKNOWN_MEMBER_ID" in lag.metrics().refused[group]
        consumer.close()
        assert len([one for one in caplog.records if one.getMessage().startswith("group")]) == 1
        fill(broker, topic, 3, 1)
        query = writer(frame, topic, tmp_path).trigger(availableNow=True).start()
        await_end(query)
        assert lag.drain(query, timeout_s=TIMEOUT_S)
        assert committed(broker, group) == {(topic, 0): 4}


def test_several_sources_and_a_topic_that_is_gone(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Two sources of topics, one of which is reported after its topic was deleted, and one source of another kind."""
    stock, ours = Connector(spark, STOCK), Connector(spark, OURS)
    frames = [spark.readStream.format("rate").load().selectExpr("cast('1' as binary) value")]
    for number, connector in enumerate((stock, ours)):
        create_topic(broker, f"{topic}.{number}")
        fill(broker, f"{topic}.{number}", 0, 5)
        frames.append(connector.stream(broker, subscribe=f"{topic}.{number}").load().select("value"))
    frame = frames[0].union(frames[1]).union(frames[2])

    def delete(_: DataFrame, __: int) -> None:
        Admin(broker).delete(f"{topic}.1")
        wait_until(lambda: f"{topic}.1" not in Admin(broker).topics(), "it is still listed")

    with reporting(spark, broker, f"group-of-{topic}") as lag:
        query = frame.writeStream.format("noop").queryName(topic).trigger(availableNow=True).start()
        await_end(query)
        assert lag.drain(query, timeout_s=TIMEOUT_S)
        group = f"group-of-{topic}"
        assert committed(broker, group) == {(f"{topic}.0", 0): 5, (f"{topic}.1", 0): 5}
        fill(broker, f"{topic}.0", 5, 1)
        query = frame.writeStream.foreachBatch(delete).queryName(topic).trigger(once=True).start()
        await_end(query)
        assert not lag.drain(query, timeout_s=TIMEOUT_S)
        assert f"refuses offsets of {topic}.1-0: UNKNOWN_TOPIC_OR_PARTITION" in lag.metrics().refused[group]
        assert committed(broker, group)[f"{topic}.0", 0] == 6
