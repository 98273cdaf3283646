"""One Spark session for all tests, as it takes longer to start than most queries; a place to write to; a broker."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from compat_tests.harness.requirements import need_spark_jars
from compat_tests.harness.target import target_broker
from compat_tests.spark.queries import OURS, STOCK, Connector, Output
from spark_connectors import register

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compat_tests.harness.broker import Broker


@pytest.fixture(scope="session")
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
    register(session)
    yield session
    session.stop()


@pytest.fixture(params=[pytest.param(STOCK, id="stock"), pytest.param(OURS, id="kafkawire")])
def connector(request: pytest.FixtureRequest, spark: SparkSession) -> Connector:
    """Each test for both."""
    return Connector(spark, request.param)


@pytest.fixture
def output(spark: SparkSession, tmp_path: Path) -> Output:
    return Output(spark, tmp_path)


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """To be killed, and with a cleaner that looks often."""
    with target_broker(tmp_path_factory.mktemp("own"), {"log.cleaner.backoff.ms": "200"}) as running:
        yield running
