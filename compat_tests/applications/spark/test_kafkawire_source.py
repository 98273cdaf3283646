"""kafkawire's source beside Spark's own: the same rows in the same order, and checkpoints that go on under either.

In addition: an idle query rests, a topic that was created again is an error, a broker may come back.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import spark_connectors
from compat_tests.applications.spark.queries import (
    DONE_WITHIN_S,
    FIRST_MS,
    OURS,
    STOCK,
    Connector,
    Output,
    fill,
    numbers,
    run_to_end,
    running,
)
from compat_tests.applications.spark.test_transactions import COMMITTED, Writer, position
from compat_tests.clients.confluent.clients import (
    Admin,
    create_topic,
    flush,
    grow_topic,
    producer,
    wait_until,
    wait_until_gone,
)
from spark_connectors import WorkersLack, check
from spark_connectors.source.options import COLUMNS, HEADERS, source_options

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from compat_tests.harness.broker import Broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROW = (*COLUMNS, HEADERS)
WITHOUT_US = """
import pickle, sys
sys.modules["spark_connectors"] = None
sys.stdout.write(str(pickle.load(sys.stdin.buffer)()))
"""


@pytest.fixture
def stock(spark: SparkSession) -> Connector:
    return Connector(spark, STOCK)


@pytest.fixture
def ours(spark: SparkSession) -> Connector:
    return Connector(spark, OURS)


def rows_in_order(frame: DataFrame) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    """The rows of each partition of a topic, in the order of the frame."""
    return in_order(frame.selectExpr(*ROW).collect())


def in_order(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    found: dict[tuple[str, int], list[tuple[object, ...]]] = {}
    for row in rows:
        _, _, topic, partition, *_ = row
        found.setdefault((topic, partition), []).append(tuple(row))
    return found


def write_all_sorts(broker: Broker, topic: str, count: int) -> None:
    """Write keys, values and headers that exist, are empty or null; batches of any size, in every codec."""
    choice = random.Random(7)
    for codec in CODECS:
        client = producer(broker, compression_type=codec, batch_num_messages=choice.choice([1, 7, 500]))
        for number in range(count):
            key = choice.choice([None, b"", b"k%d" % (number % 5)])
            value = choice.choice([None, b"", b"v" * choice.randrange(300), str(number).encode()])
            headers = [(choice.choice(["", "a", "ü"]), choice.choice([None, b"", b"h" * 9])) for _ in range(number % 3)]
            time_ms = choice.randrange(1, FIRST_MS)
            client.produce(topic, value, key, partition=choice.randrange(3), headers=headers, timestamp=time_ms)
        flush(client)


# --- the same rows


@pytest.mark.parametrize("config", [{}, {"message.timestamp.type": "LogAppendTime"}], ids=["create", "append"])
def test_the_same_rows_in_the_same_order(
    stock: Connector, ours: Connector, broker: Broker, topic: str, config: dict[str, str]
) -> None:
    create_topic(broker, topic, partitions=3, config=config)
    write_all_sorts(broker, topic, 400)
    options = {"subscribe": topic, "includeHeaders": "true"}
    expected = rows_in_order(stock.reader(broker, **options).load())
    assert sum(len(rows) for rows in expected.values()) == 5 * 400
    assert all([row[4] for row in rows] == list(range(len(rows))) for rows in expected.values())
    assert rows_in_order(ours.reader(broker, **options).load()) == expected
    assert rows_in_order(ours.reader(broker, **options, maxRecordsPerPartition="37").load()) == expected


@pytest.mark.parametrize("isolation", [{}, COMMITTED], ids=["uncommitted", "committed"])
def test_the_same_rows_of_transactions(
    stock: Connector, ours: Connector, broker: Broker, topic: str, isolation: dict[str, str]
) -> None:
    create_topic(broker, topic, partitions=2)
    writer = Writer(broker, topic)
    for number in range(4):
        writer.everything(number)
    options = {"subscribe": topic, "includeHeaders": "true", **isolation}
    expected = rows_in_order(stock.reader(broker, **options).load())
    assert sum(len(rows) for rows in expected.values()) == writer.kept + (0 if isolation else writer.aborted)
    for split in ({}, {"maxRecordsPerPartition": "3"}):
        assert rows_in_order(ours.reader(broker, **options, **split).load()) == expected


def test_the_schema_is_the_same(stock: Connector, ours: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    for headers in ("true", "false"):
        options = {"subscribe": topic, "includeHeaders": headers}
        assert ours.reader(broker, **options).load().schema == stock.reader(broker, **options).load().schema
        assert ours.stream(broker, **options).load().schema == stock.stream(broker, **options).load().schema


def test_columns(ours: Connector, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 3)
    frame = ours.reader(broker, subscribe=topic, columns="offset,value").load()
    assert [tuple(row) for row in frame.collect()] == [(number, str(number).encode()) for number in range(3)]


def test_a_batch_is_cut_for_many_tasks(ours: Connector, broker: Broker, topic: str) -> None:
    """Trap: one record batch belongs to several tasks, each of which gives out its own offsets only."""
    create_topic(broker, topic)
    client = producer(broker, linger_ms=1000, compression_type="zstd")
    for number in range(100):
        client.produce(topic, str(number).encode(), partition=0)
    flush(client)
    frame = ours.reader(broker, subscribe=topic, minPartitions="7").load()
    assert frame.rdd.getNumPartitions() == 7
    assert [row.offset for row in frame.select("offset").collect()] == list(range(100))


def test_options_that_cannot_be_obeyed(ours: Connector, broker: Broker, topic: str) -> None:
    for name in ("kafka.security.protocol", "startingoffset", "kafka.ssl.keystore.type"):
        with pytest.raises(Exception, match=f"option {name}"):
            ours.reader(broker, subscribe=topic, **{name: "SASL_SSL"}).load()


def test_a_view_of_the_format_works_and_a_table_is_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 3)
    name = topic.replace("-", "_")
    where = f"USING kafkawire OPTIONS ('kafka.bootstrap.servers' '{broker.bootstrap}', 'subscribe' '{topic}')"
    spark.sql(f"CREATE TEMPORARY VIEW {name} {where}")
    assert [row.n for row in spark.sql(f"SELECT count(*) n FROM {name}").collect()] == [3]
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW … USING kafkawire works"):
        spark.sql(f"CREATE TABLE {name} {where}")


def test_a_start_behind_the_end_is_an_error_of_both_sources(
    stock: Connector, ours: Connector, broker: Broker, topic: str
) -> None:
    create_topic(broker, topic)
    fill(broker, topic, 0, 3)
    for source in (stock, ours):
        starting = json.dumps({topic: {"0": 99}})
        with pytest.raises(Exception, match=r"start offset 99 is greater than the (resolved )?end offset 3"):
            source.reader(broker, subscribe=topic, startingOffsets=starting).load().count()


def test_an_address_where_no_process_listens_fails_within_seconds(spark: SparkSession) -> None:
    begun_s = time.monotonic()
    where = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(Exception, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused"):
        spark.read.format("kafkawire").options(**where).load().count()
    assert time.monotonic() - begun_s < 30


def test_a_reader_pickled_by_value_runs_without_the_package(broker: Broker, topic: str) -> None:
    """A reader that was pickled by value plans and reads where the package cannot be imported, as from a zip."""
    from pyspark import cloudpickle

    from spark_connectors.data_source import BatchReader

    create_topic(broker, topic)
    fill(broker, topic, 0, 20)
    where = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    reader = BatchReader(source_options(where, is_stream=False))

    def count() -> int:
        return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))

    cloudpickle.register_pickle_by_value(spark_connectors)
    try:
        pickled = cloudpickle.dumps(count)
    finally:
        cloudpickle.unregister_pickle_by_value(spark_connectors)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US], input=pickled, capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"20"


def test_workers_are_looked_at(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    check(spark)
    monkeypatch.setattr("spark_connectors.registration.NEEDED", ("pyarrow", "no_such_module"))
    with pytest.raises(WorkersLack, match="no_such_module: No module named"):
        check(spark)


# --- checkpoints


class Batches:
    """The numbers that a stream gave out, by its batch."""

    def __init__(self, directory: Path) -> None:
        self.found: dict[int, list[int]] = {}
        self.checkpoint = directory / "checkpoint"

    def run(self, frame: DataFrame) -> None:
        """Run the query on the records that are there."""

        def take(batch: DataFrame, number: int) -> None:
            self.found[number] = numbers(batch)

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        run_to_end(writer)

    def forget_the_last_commit(self) -> int:
        """Undo the last commit, as if the driver had died before it: the batch is planned, and will be done again."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal())
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return last


def test_a_checkpoint_goes_on_under_either_source(
    stock: Connector, ours: Connector, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A checkpoint goes on under either source, also with a batch that the other one had planned and not finished."""
    create_topic(broker, topic, partitions=2)
    batches = Batches(tmp_path)
    total = 0
    for connector, other in ((stock, ours), (ours, stock), (stock, ours)):
        for partition in (0, 1):
            fill(broker, topic, total, 20, partition)
            total += 20
        options = {"subscribe": topic, "maxOffsetsPerTrigger": "15"}
        batches.run(connector.stream(broker, **options).load())
        assert sorted(number for batch in batches.found.values() for number in batch) == list(range(total))
        last = batches.forget_the_last_commit()
        before = batches.found.pop(last)
        batches.run(other.stream(broker, **options).load())
        assert batches.found[last] == before
        assert sorted(number for batch in batches.found.values() for number in batch) == list(range(total))


def test_a_checkpoint_overrides_starting_offsets(ours: Connector, broker: Broker, topic: str, tmp_path: Path) -> None:
    """A starting offset that is no longer valid is ignored by a query with a checkpoint, and an error without one."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 5)
    frame = ours.stream(broker, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 2}})).load()
    batches = Batches(tmp_path)
    batches.run(frame)
    grow_topic(broker, topic, 2)
    fill(broker, topic, 5, 5, partition=1)
    batches.run(frame)
    assert sorted(number for batch in batches.found.values() for number in batch) == list(range(2, 10))
    with pytest.raises(Exception, match="must name all partitions"):
        Batches(tmp_path / "other").run(frame)


def test_an_idle_query_plans_nothing(ours: Connector, broker: Broker, topic: str, output: Output) -> None:
    """Trap: Spark compares offsets as text, so that the same ones in another order would be new ones."""
    create_topic(broker, topic, partitions=12)
    fill(broker, topic, 0, 5, partition=11)
    frame = ours.stream(broker, subscribe=topic).load()
    with running(output.writer(frame).trigger(processingTime="50 milliseconds")) as query:
        output.wait_for(5, query)
        time.sleep(2.0)
        assert {progress["batchId"] for progress in query.recentProgress if progress["numInputRows"]} == {0}
    assert len([path for path in (output.checkpoint / "offsets").iterdir() if path.name.isdecimal()]) == 1


# --- changes of topics and brokers


@pytest.mark.parametrize("more", [0, 50], ids=["less", "more"])
def test_a_topic_recreated_with_more_records(
    ours: Connector, broker: Broker, topic: str, output: Output, more: int
) -> None:
    """Trap: a topic that was created again with more records than before looks like the old one by its offsets."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 10)
    frame = ours.stream(broker, subscribe=topic, failOnDataLoss="false").load()
    run_to_end(output.writer(frame))
    Admin(broker).delete(topic)
    wait_until_gone(broker, topic)
    create_topic(broker, topic)
    fill(broker, topic, 100, 5 + more)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
        run_to_end(output.writer(frame))
    assert output.numbers() == list(range(10))


def test_a_broker_that_comes_back(ours: Connector, own_broker: Broker, topic: str, output: Output) -> None:
    """A query goes on when its broker comes back."""
    create_topic(own_broker, topic)
    fill(own_broker, topic, 0, 1000)
    frame = ours.stream(own_broker, subscribe=topic, maxOffsetsPerTrigger="250").load()
    with running(output.writer(frame).trigger(processingTime="100 milliseconds")) as query:
        for count in (1000, 1500):
            wait_until(lambda: len(query.recentProgress) >= 2, "no batch comes to its end", DONE_WITHIN_S)
            own_broker.kill()
            time.sleep(0.5)
            own_broker.start()
            output.wait_for(count, query)
            fill(own_broker, topic, count, 500)
        output.wait_for(2000, query)
        wait_until(lambda: position(query, topic) == {"0": 2000}, "its last batch comes to no end", DONE_WITHIN_S)


def test_records_are_deleted_meanwhile(ours: Connector, broker: Broker, topic: str, output: Output) -> None:
    """A query from the earliest offset begins wherever that is; a stream goes on behind the deleted records."""
    create_topic(broker, topic)
    fill(broker, topic, 0, 3000)

    def delete() -> None:
        for offset in range(0, 2001, 50):
            Admin(broker).delete_records(topic, offset)

    lossy = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "300"}
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        found = [
            row.offset for row in ours.reader(broker, subscribe=topic, maxRecordsPerPartition="100").load().collect()
        ]
        frame = ours.stream(broker, subscribe=topic, **lossy).load()
        run_to_end(output.writer(frame))
        deleting.result()
    for offsets in (found, output.numbers()):
        assert offsets == sorted(set(offsets))
        assert offsets[-1000:] == list(range(2000, 3000))
