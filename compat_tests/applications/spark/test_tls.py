"""Both Spark connectors over TLS, with certificates of clients: batches both ways, a stream, and wrong settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark.queries import OURS
from compat_tests.harness.secured import Secured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from compat_tests.applications.spark.queries import Connector, Output

ROWS = [(f"k{number}", f"v{number}") for number in range(1000)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    found = Secured(tmp_path_factory.mktemp("tls"), "required")
    with found.broker:
        yield found


def options(secured: Secured, *, shows_certificate: bool = True) -> dict[str, str]:
    security = {f"kafka.{key}": value for key, value in secured.java(shows_certificate=shows_certificate).items()}
    return {"kafka.bootstrap.servers": secured.bootstrap, **security}


def write(spark: SparkSession, secured: Secured, topic: str) -> None:
    frame = spark.createDataFrame(ROWS, ["key", "value"])
    frame.write.format("kafka").options(**options(secured), topic=topic).save()


def test_batches(spark: SparkSession, connector: Connector, secured: Secured, topic: str) -> None:
    write(spark, secured, topic)
    reader = spark.read.format(connector.name).options(**options(secured), subscribe=topic, startingOffsets="earliest")
    found = reader.load().selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted((row.key, row.value) for row in found) == sorted(ROWS)


def test_a_stream_into_another_topic(
    spark: SparkSession, connector: Connector, secured: Secured, topic: str, output: Output
) -> None:
    """The stream is written by the connector that reads it."""
    write(spark, secured, topic)
    target = f"{topic}-copy"
    source = spark.readStream.format(connector.name).options(**options(secured), subscribe=topic)
    frame = source.option("startingOffsets", "earliest").load().select("key", "value")
    sink = frame.writeStream.format(connector.name).options(**options(secured), topic=target)
    sink.option("checkpointLocation", str(output.checkpoint)).trigger(availableNow=True).start().awaitTermination(120)
    reader = spark.read.format("kafka").options(**options(secured), subscribe=target, startingOffsets="earliest")
    found = reader.load().selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted((row.key, row.value) for row in found) == sorted(ROWS)


def test_our_connector_without_a_certificate(spark: SparkSession, secured: Secured, topic: str) -> None:
    write(spark, secured, topic)
    given = options(secured, shows_certificate=False)
    reader = spark.read.format(OURS).options(**given, subscribe=topic, startingOffsets="earliest")
    with pytest.raises(Exception, match="certificate required"):
        reader.load().collect()
