"""A driver that copies a topic from a source to a sink, to be killed; it starts a query that failed again.

It begins when it gets a line on stdin, and leaves when stdin is closed before. The query has no end, or it copies all
that is there, in steps. Each failure is a line of its output.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from spark_connectors import register

FAILED = "COPY FAILED:"
OURS = re.compile(r"spark_connectors\.[a-z_.]+\.([A-Z]\w+):")  # an exception


@dataclass(frozen=True)
class Task:
    """The task of a driver."""

    master: str
    settings: dict[str, str]  # of Spark's
    source: dict[str, str]
    sink: dict[str, str]
    has_end: bool
    columns: tuple[str, ...] = ("key", "value")
    every: str = "0 seconds"  # a micro-batch begins
    connector: str = "kafkawire"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "compat_tests.applications.spark.copier", json.dumps(asdict(self))]


def copy(spark: SparkSession, task: Task) -> None:
    """Run the query. Raises its error, or that of its start."""
    frame = spark.readStream.format(task.connector).options(**task.source).load().select(*task.columns)
    writer = frame.writeStream.format(task.connector).options(**task.sink)
    writer = writer.trigger(availableNow=True) if task.has_end else writer.trigger(processingTime=task.every)
    writer.start().awaitTermination()


def main(task: Task) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(task.master)
    for key, value in task.settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    is_done = not sys.stdin.readline()
    while not is_done:
        try:
            copy(spark, task)
            is_done = True
        except Exception as error:  # of Spark or Py4J, after a kill: the test waits for progress instead
            ours = OURS.findall(str(error))
            print(f"\n{FAILED} {ours[-1] if ours else 'a process was gone'}\n{error}", flush=True)


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
