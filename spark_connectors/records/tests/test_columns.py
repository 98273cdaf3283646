"""The schema is exactly that of PySpark for the kafka source's columns."""

from __future__ import annotations

import pytest

from spark_connectors.records.columns import COLUMNS, schema_of


def test_pyspark_makes_the_same_schema_of_it() -> None:
    """All columns may be null, as in KafkaRecordToRowConverter."""
    types = pytest.importorskip("pyspark.sql.types", reason="needs pyspark: pip install -r requirements/spark.txt")
    from pyspark.sql.pandas.types import to_arrow_schema

    header = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
    declared = (
        types.StructType()
        .add("key", types.BinaryType())
        .add("value", types.BinaryType())
        .add("topic", types.StringType())
        .add("partition", types.IntegerType())
        .add("offset", types.LongType())
        .add("timestamp", types.TimestampType())
        .add("timestampType", types.IntegerType())
        .add("headers", types.ArrayType(header))
    )
    assert to_arrow_schema(declared, timezone="UTC").equals(schema_of(COLUMNS), check_metadata=True)


def test_a_column_that_the_kafka_source_has_not() -> None:
    with pytest.raises(KeyError):
        schema_of(["key", "leader"])
