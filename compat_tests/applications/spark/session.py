"""A Spark session on this machine, with its own connector for Kafka and kafkawire's."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_connectors import register

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def local_session(jars: Path, scratch: Path, memory: str = "1g", *, jvm: Sequence[str] = ()) -> Iterator[SparkSession]:
    """A session with the four jars, no user interface and no progress shown, everything on 127.0.0.1; `memory` is the
    JVM's, and `jvm` more of its options."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(jvm),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(scratch),
    }
    builder = SparkSession.builder.master("local[2]").appName("compat")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    try:
        yield session
    finally:
        session.stop()
