"""A Spark session for all tests, as it takes longer to start than most queries; a directory for output; a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark.queries import OURS, STOCK, Connector, Output
from compat_tests.applications.spark.session import local_session
from compat_tests.harness.apache_kafka import QUICK_JVM
from compat_tests.harness.requirements import need_spark_jars
from compat_tests.harness.target import target_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from compat_tests.harness.broker import Broker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_session(need_spark_jars(), tmp_path_factory.mktemp("spark"), jvm=QUICK_JVM) as session:
        yield session


@pytest.fixture(params=[pytest.param(STOCK, id="stock"), pytest.param(OURS, id="kafkawire")])
def connector(request: pytest.FixtureRequest, spark: SparkSession) -> Connector:
    """The connector of a test: each test runs with both."""
    return Connector(spark, request.param)


@pytest.fixture
def output(spark: SparkSession, tmp_path: Path) -> Output:
    return Output(spark, tmp_path)


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker to be killed, whose cleaner runs often."""
    with target_broker(tmp_path_factory.mktemp("own"), {"log.cleaner.backoff.ms": "200"}) as running:
        yield running
