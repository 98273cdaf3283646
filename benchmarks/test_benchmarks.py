"""Each benchmark runs once at toy size, so that it still works when its figures are needed; nothing is timed.

Only the wire load uses Apache Kafka here, because it takes long to start: most code of the others for it is the same,
and the rest (its quickstart, restarts, limits of its own) is not tried at this size.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

from benchmarks.brokers import (
    administration,
    cold_seek,
    compaction,
    connections,
    fairness,
    groups,
    growth,
    key_lookup,
    loop_lag,
    partitions,
    quickstart,
    start,
    stock_client,
    transactions,
    wire_load,
)
from benchmarks.clusters import catch_up, contention, failover, replication, saturation
from benchmarks.parts import codec, engine_append, io_spike, request_cost, truncation
from benchmarks.spark import export, spark, spark_decode, spark_encode, spark_segments
from benchmarks.tier import tiering
from compat_tests.harness.late_workers import TRIED_AGAIN
from compat_tests.harness.requirements import (
    need_command,
    need_java,
    need_kafka_jars,
    need_s3_server,
    need_spark_jars,
    need_zookeeper_jars,
)
from compat_tests.harness.s3_server import SERVER as S3_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def test_wire_load() -> None:
    need_kafka_jars()
    wire_load.main(["--toy"])


def test_transactions() -> None:
    need_kafka_jars()
    need_command("javac", "install a JDK, 17 or newer")
    transactions.main(["--toy"])


@TRIED_AGAIN
def test_spark() -> None:
    need_spark_jars()
    spark.main(["--toy"])


@TRIED_AGAIN
def test_spark_segments() -> None:
    need_spark_jars()
    spark_segments.main(["--toy"])


@TRIED_AGAIN
def test_export() -> None:
    need_spark_jars()
    export.main(["--toy"])


@pytest.mark.parametrize("main", [replication.main, failover.main, catch_up.main, contention.main, saturation.main])
def test_clusters_of_three(main: Callable[[Sequence[str]], None]) -> None:
    need_zookeeper_jars()
    main(["--toy"])


def test_tiering() -> None:
    need_java()
    need_s3_server(S3_SERVER)
    tiering.main(["--toy"])


@pytest.mark.parametrize(
    "main",
    [
        administration.main,
        cold_seek.main,
        compaction.main,
        connections.main,
        fairness.main,
        groups.main,
        growth.main,
        key_lookup.main,
        loop_lag.main,
        partitions.main,
        quickstart.main,
        request_cost.main,
        spark_decode.main,
        start.main,
        stock_client.main,
    ],
    ids=[
        "administration",
        "cold seek",
        "compaction",
        "connections",
        "fairness",
        "groups",
        "growth",
        "key lookup",
        "loop lag",
        "partitions",
        "quickstart",
        "request cost",
        "spark decode",
        "start",
        "stock client",
    ],
)
def test_against_kafkawire_alone(main: Callable[[Sequence[str]], None]) -> None:
    need_java()
    main(["--toy"])


NEEDS_X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="its system calls have the numbers of x86-64")


@pytest.mark.parametrize(
    "main",
    [
        pytest.param(codec.main, id="codec"),
        pytest.param(engine_append.main, id="engine append"),
        pytest.param(spark_encode.main, id="spark encode"),
        pytest.param(truncation.main, id="truncation"),
        pytest.param(io_spike.main, id="I/O spike", marks=NEEDS_X86_64),
    ],
)
def test_without_a_broker(main: Callable[[Sequence[str]], None]) -> None:
    main(["--toy"])
