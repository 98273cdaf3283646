"""Readers, streams and records as these tests need them."""

from __future__ import annotations

import re
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compat_tests.clients.confluent.clients import flush, producer, wait_until
from compat_tests.harness.kafkawire_broker import Kafkawire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery

    from compat_tests.harness.broker import Broker

FIRST_MS = 1_700_000_000_000
DONE_WITHIN_S = 60.0
STOCK, OURS = "kafka", "kafkawire"

# A source that fails, instead of waiting for minutes, when the broker does not answer.
LIMITS = {"kafka.request.timeout.ms": "20000", "kafka.default.api.timeout.ms": "20000"}
_FETCHES = re.compile(rb'^kafkawire_requests_total\{request="fetch"\} (\S+)$', re.MULTILINE)


def sealed_files(broker: Kafkawire) -> dict[str, str]:
    """The options with which kafkawire's source reads sealed segments from the broker's files."""
    return {"segments": broker.http_url, "segments.files": "true"}


def fetches(broker: Kafkawire) -> float:
    """The number of Fetch requests that the broker has had."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics") as answer:
        [found] = _FETCHES.findall(answer.read())
    return float(found)


@dataclass(frozen=True)
class Connector:
    """A source for the same tests: Spark's own, or kafkawire's with the same options. The latter may read sealed
    segments from their store or files."""

    spark: SparkSession
    name: str
    goes_past_brokers: bool = False

    def reader(self, broker: Broker, **options: str) -> DataFrameReader:
        """A reader of batches."""
        defaults = {"kafka.bootstrap.servers": broker.bootstrap, **self._segments(broker), **LIMITS}
        return self.spark.read.format(self.name).options(**{**defaults, **options})

    def stream(self, broker: Broker, **options: str) -> DataStreamReader:
        """A reader of streams, from the earliest offset on unless an option says otherwise."""
        where = {"kafka.bootstrap.servers": broker.bootstrap, **self._segments(broker)}
        defaults = {**where, "startingOffsets": "earliest", **LIMITS}
        return self.spark.readStream.format(self.name).options(**{**defaults, **options})

    def _segments(self, broker: Broker) -> dict[str, str]:
        if not self.goes_past_brokers:
            return {}
        assert isinstance(broker, Kafkawire), "no other broker tells what is sealed"
        return sealed_files(broker)


def write(frame: DataFrame, broker: Broker, topic: str | None) -> None:
    """Write rows with the sink; its Java producer is idempotent. Without `topic` the rows have a column of that
    name."""
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **({} if topic is None else {"topic": topic})}
    frame.write.format("kafka").options(**settings).save()


def fill(broker: Broker, topic: str, first: int, count: int, partition: int = 0) -> None:
    """Write records numbered from `first`, one every 10 ms."""
    client = producer(broker)
    for number in range(first, first + count):
        client.produce(topic, str(number).encode(), partition=partition, timestamp=FIRST_MS + 10 * number)
    flush(client)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


class Output:
    """A directory of Parquet files, written exactly once, with the checkpoint of the query that writes them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._path = directory / "output"
        self.checkpoint = directory / "checkpoint"

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        sink = frame.select("value").writeStream.format("parquet").option("path", str(self._path))
        return sink.option("checkpointLocation", str(self.checkpoint))

    def numbers(self) -> list[int]:
        """The numbers that are written so far."""
        if not self._path.exists():
            return []
        return numbers(self._spark.read.schema("value binary").parquet(str(self._path)))

    def _batches(self) -> int:
        """How many have been written."""
        return sum(1 for _ in (self._path / "_spark_metadata").glob("[0-9]*"))

    def wait_for(self, count: int, query: StreamingQuery) -> None:
        """Wait until the numbers below `count` are there, each once. Raises the error of the query.

        Each look is a query too and slows the other one down: it happens only once after each micro-batch.
        """
        batches = -1

        def is_done() -> bool:
            nonlocal batches
            failure = query.exception()
            if failure is not None:
                raise failure
            before, batches = batches, self._batches()
            return batches != before and self.numbers() == list(range(count))

        wait_until(is_done, f"the first {count} records are not there", DONE_WITHIN_S)


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def await_end(query: StreamingQuery, within_s: float = DONE_WITHIN_S) -> None:
    """Wait for the end of the query. Raises its error."""
    deadline = time.monotonic() + within_s
    while query.isActive:
        assert time.monotonic() < deadline, "the query does not end"
        query.awaitTermination(1)
    query.awaitTermination(1)


def run_to_end(writer: DataStreamWriter, within_s: float = DONE_WITHIN_S) -> None:
    """Run the query on all records that are there now. Raises its error."""
    await_end(writer.trigger(availableNow=True).start(), within_s)
