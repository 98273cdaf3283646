"""A driver to be killed: its session, which retries tasks, copies a topic by the sink with a fault in it."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from compat_tests.applications.spark.faulty import Faulty
from compat_tests.harness.apache_kafka import QUICK_JVM
from spark_connectors import register


def main(source: dict[str, str], sink: dict[str, str]) -> None:
    """Run the query with these options until it ends."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", " ".join(QUICK_JVM))
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    register(spark)
    spark.dataSource.register(Faulty)
    frame = spark.readStream.format("kafkawire").options(**source).load()
    query = frame.writeStream.format("faulty").options(**sink).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
