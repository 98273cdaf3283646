"""Code may be sent to executors with each query: all of it is pickled by value, and no module is imported by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connectors.segments.plan import cut
from spark_connectors.segments.sealed import Sealed
from spark_connectors.segments.tests.test_files import sealed
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.tests.by_value import printed_elsewhere
from spark_connectors.wire import TopicPartition

PLACE, ID = TopicPartition("t", 0), bytes(16)


def test_source_and_staging_location_work_after_pickling_by_value(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: pip install -r requirements/spark.txt")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from spark_connectors.data_source import Kafkawire, RangePartition
    from spark_connectors.locations import resolved

    segment = sealed(tmp_path, b"a", b"b")
    [wanted] = cut(OffsetRange(PLACE, ID, 0, 2), Sealed(PLACE, ID, 0, 2, (segment,)))
    options = {"subscribe": "t", "columns": "value", "segments": f"file://{tmp_path}"}
    source, partition, staging = Kafkawire(options), RangePartition(wanted), str(tmp_path)
    schema = StructType([StructField("value", BinaryType())])
    resolved(staging)  # this process's open file system is not pickled

    def task() -> object:
        rows = [row for batch in source.reader(schema).read(partition) for row in batch.to_pylist()]
        return rows, resolved(staging), source.schema()

    expected = repr(task())
    assert printed_elsewhere(task) == expected
