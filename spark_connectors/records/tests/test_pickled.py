"""Executors may have no module of ours: what they run is pickled by value, and works where nothing is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_connectors.records.tests import written

RUN = """
import pickle, sys
sys.modules["spark_connectors"] = None  # an import of it fails, as where it is not installed
print(pickle.load(sys.stdin.buffer)())
"""


def test_by_value() -> None:
    cloudpickle = pytest.importorskip(
        "pyspark.cloudpickle", reason="needs pyspark: pip install -r requirements/spark.txt"
    )
    import spark_connectors
    from engine.batches.batch import Codec, Record, RecordHeader
    from spark_connectors.records.batches import batches_of
    from spark_connectors.records.columns import schema_of
    from spark_connectors.records.decode import decode
    from spark_connectors.records.visible import visible

    log = written.batch(Record(b"k", b"v", 1, (RecordHeader(b"\xff", b"w"),)), codec=Codec.ZSTD)

    def task() -> list[object]:
        seen = visible(batches_of(log), [(1, 2)], is_committed_only=True)
        columns = ["key", "value", "offset", "headers"]
        found = decode(log, seen, topic="t", partition=0, start=0, end=1, schema=schema_of(columns))
        return [row for one in found for row in one.to_pylist()]

    expected = repr(task())  # what this process has made for it stays here
    cloudpickle.register_pickle_by_value(spark_connectors)
    try:
        pickled = cloudpickle.dumps(task)
    finally:
        cloudpickle.unregister_pickle_by_value(spark_connectors)
    done = subprocess.run([sys.executable, "-c", RUN], input=pickled, capture_output=True, check=False)
    assert done.stdout.decode().strip() == expected, done.stderr.decode()
