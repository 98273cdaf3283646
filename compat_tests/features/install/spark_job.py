"""A user's Spark job: batches and streams, read and written with `format("kafkawire")`, for each way to install it.

Runs without the rest of this project. Writes its result into a file of its directory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(bootstrap: str, topic: str, place: str, way: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    found: dict[str, Any] = {"version": spark.version}
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    filters: dict[str, str] = {}
    if way == "register":
        import spark_connectors

        spark_connectors.register(spark)
        spark_connectors.check(spark)
        found["source"] = spark_connectors.__file__
        filters = {"pushDownPredicate": "true"}
    batch = spark.read.format("kafkawire").options(**options, **filters).load().where("partition < 2")
    found["batch"] = sorted(int(bytes(row.value)) for row in batch.select("value").collect())
    stream = spark.readStream.format("kafkawire").options(**options, startingOffsets="earliest").load()
    query = stream.select("value").writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
    query.awaitTermination()
    found["stream"] = len(spark.table("rows").collect())
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic}.copies"}
    batch.select("value").write.format("kafkawire").options(**sink).mode("append").save()
    copy = stream.select("value", "headers").writeStream.format("kafkawire").options(**sink)
    copy.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    copies = spark.read.format("kafkawire").options(**options | {"subscribe": sink["topic"]}).load()
    found["copies"] = sorted(int(bytes(row.value)) for row in copies.select("value").collect())
    Path(place, "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
