"""Streams: the checkpoint says which records were read, after changes of the query, the topic or the broker."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark.queries import DONE_WITHIN_S, Output, await_end, fill, numbers, run_to_end, running
from compat_tests.clients.confluent.clients import Admin, create_topic, flush, grow_topic, producer, wait_until
from compat_tests.harness.log_files import size_on_disk

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from compat_tests.applications.spark.queries import Connector
    from compat_tests.harness.broker import Broker


def test_a_stream_goes_on_from_its_checkpoint(connector: Connector, broker: Broker, topic: str, output: Output) -> None:
    """Stopped, more data, started again: exactly the new rows, also for a query that keeps running."""
    create_topic(broker, topic)
    total = 0
    for count in (100, 50, 1):
        fill(broker, topic, total, count)
        total += count
        with running(output.writer(connector.stream(broker, subscribe=topic).load())) as query:
            output.wait_for(total, query)
            fill(broker, topic, total, 10)
            total += 10
            output.wait_for(total, query)


def test_available_now_reads_in_steps(connector: Connector, broker: Broker, topic: str, tmp_path: Path) -> None:
    """A rate limit splits the records into several batches; each record comes once."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 95)
    seen: list[list[int]] = []

    def collect(frame: DataFrame, _: int) -> None:
        seen.append(numbers(frame))

    source = connector.stream(broker, subscribe=topic, maxOffsetsPerTrigger="20").load()
    sink = source.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_end(sink)
    assert [number for batch in seen for number in batch] == list(range(95))
    assert len(seen) == 5


def test_a_batch_waits_until_there_is_enough(connector: Connector, broker: Broker, topic: str, output: Output) -> None:
    """A batch waits for minOffsetsPerTrigger, but no longer than maxTriggerDelay; with a trigger by the clock."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 10)
    options = {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "6s"}
    source = connector.stream(broker, subscribe=topic, **options).load()
    with running(output.writer(source).trigger(processingTime="200 milliseconds")) as query:
        output.wait_for(10, query)  # the first batch of a query waits for nothing
        fill(broker, topic, 10, 10)
        output.wait_for(20, query)
        wait_until(lambda: len(begun(query)) >= 2, "the progress of a batch is not told")  # it is, after its rows
        first, second, *_ = begun(query)
        waited = datetime.fromisoformat(second) - datetime.fromisoformat(first)
        assert waited > timedelta(seconds=5), "too little was not waited with"
        fill(broker, topic, 20, 40)
        output.wait_for(60, query)


def begun(query: StreamingQuery) -> list[str]:
    """The time at which each batch with rows began."""
    return [one["timestamp"] for one in query.recentProgress if one["numInputRows"]]


def test_topics_and_partitions_that_come_later(
    connector: Connector, broker: Broker, topic: str, output: Output
) -> None:
    create_topic(broker, f"{topic}.one")
    fill(broker, f"{topic}.one", 0, 10)
    options = {"subscribePattern": f"{topic}[.].*", "kafka.metadata.max.age.ms": "500"}
    with running(output.writer(connector.stream(broker, **options).load())) as query:
        output.wait_for(10, query)
        grow_topic(broker, f"{topic}.one", 3)
        fill(broker, f"{topic}.one", 10, 10, partition=2)
        create_topic(broker, f"{topic}.two")
        fill(broker, f"{topic}.two", 20, 10)
        output.wait_for(30, query)


@pytest.mark.parametrize("fails", [True, False])
def test_records_deleted_before_they_were_read(
    connector: Connector, broker: Broker, topic: str, output: Output, fails: bool
) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 10)
    source = connector.stream(broker, subscribe=topic, failOnDataLoss=str(fails).lower()).load()
    run_to_end(output.writer(source))
    fill(broker, topic, 10, 20)
    Admin(broker).delete_records(topic, 15)
    again = output.writer(source).trigger(availableNow=True).start()
    if fails:
        with pytest.raises(Exception, match=r"failOnDataLoss|KAFKA_DATA_LOSS"):
            await_end(again)
    else:
        await_end(again)
        assert output.numbers() == [*range(10), *range(15, 30)]


def test_from_topic_to_topic(connector: Connector, broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic)
    create_topic(broker, f"{topic}.copy")
    fill(broker, topic, 0, 100)
    source = connector.stream(broker, subscribe=topic, maxOffsetsPerTrigger="30").load().select("value")
    sink = source.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    sink = sink.option("topic", f"{topic}.copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_to_end(sink)
    assert numbers(connector.reader(broker, subscribe=f"{topic}.copy").load()) == list(range(100))


def test_a_compacted_topic_has_gaps(connector: Connector, own_broker: Broker, topic: str, output: Output) -> None:
    """Gaps of a compacted topic are no loss of data."""
    config = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
    create_topic(own_broker, topic, config=config)
    client = producer(own_broker, batch_num_messages=20)
    for number in range(4000):
        client.produce(topic, b"%d" % number + b" " * 1000, key=b"key %d" % (number % 50), partition=0)
    flush(client)
    wait_until(lambda: size_on_disk(own_broker, topic) < 3 << 20, "it is not compacted", DONE_WITHIN_S)
    source = connector.stream(own_broker, subscribe=topic, failOnDataLoss="true", maxOffsetsPerTrigger="500").load()
    run_to_end(output.writer(source))
    found = output.numbers()
    assert found[-50:] == list(range(3950, 4000))
    assert len(found) == len(set(found)) < 4000


def test_the_broker_is_killed_in_the_middle_of_a_batch(
    connector: Connector, own_broker: Broker, topic: str, output: Output
) -> None:
    """The query ends or waits; from its checkpoint on nothing is lost and nothing comes twice."""
    create_topic(own_broker, topic)
    fill(own_broker, topic, 0, 2000)
    slow = {"subscribe": topic, "maxOffsetsPerTrigger": "100", "kafka.max.poll.records": "5"}
    with running(output.writer(connector.stream(own_broker, **slow).load())) as query:
        wait_until(lambda: len(query.recentProgress) >= 2, "no batch comes to its end", DONE_WITHIN_S)
        own_broker.kill()
        time.sleep(1.0)
        own_broker.start()
    fill(own_broker, topic, 2000, 10)
    run_to_end(output.writer(connector.stream(own_broker, subscribe=topic).load()))
    assert output.numbers() == list(range(2010))
