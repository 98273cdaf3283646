"""kafkawire's source has the rows of Spark's own, while segments change and the broker is killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from compat_tests.applications.spark import past_brokers
from compat_tests.applications.spark.past_brokers import Bracket, Row
from compat_tests.faults.campaign import SEED
from compat_tests.harness.target import TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("KAFKAWIRE_CHAOS_SPARK_ROUNDS", "1"))
ROWS = [Row("a", 0, offset, "x") for offset in range(4)]


@pytest.mark.skipif(TARGET == "kafka", reason="Apache Kafka does not tell what is sealed")
def test_the_same_rows_of_topics_that_do_not_rest(spark: SparkSession, tmp_path: Path) -> None:
    print(f"KAFKAWIRE_CHAOS_SEED={SEED}")
    past_brokers.run(spark, tmp_path, SEED, ROUNDS)


def test_rows_may_go_between_two_reads_and_none_may_come() -> None:
    for found in (ROWS, ROWS[1:], ROWS[2:]):
        assert Bracket(ROWS, found, ROWS[2:]).wrong() == []
    other = ROWS[3]._replace(digest="y")
    assert Bracket(ROWS, [*ROWS[:3], other], ROWS[3:]).wrong() == [
        f"1 invented: {other} to {other}",
        f"1 lost: {ROWS[3]} to {ROWS[3]}",
    ]
    assert Bracket(ROWS, [*ROWS, ROWS[0]], ROWS).wrong() == [f"1 doubled: {ROWS[0]} to {ROWS[0]}"]
