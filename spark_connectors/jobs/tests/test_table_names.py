"""Names of tables on a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_connectors.jobs.table_names import NameRefused, table_name
from spark_connectors.jobs.tables.delta import DeltaLakeTable
from spark_connectors.jobs.tables.iceberg import IcebergTable
from spark_connectors.jobs.tables.parquet import ParquetDirectory


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("/lake/events", {}, "is no table"),
        ("orc:/lake/events", {}, "is no table"),
        ("delta:", {}, "is no table"),
        ("iceberg:db.events", {}, "is no table of Iceberg"),
        ("iceberg:lake/", {}, "is no table of Iceberg"),
        ("parquet:/lake/events", {"region": "here"}, "has no options: region"),
    ],
)
def test_invalid_table_name_or_option_is_refused(text: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(NameRefused, match=reason):
        table_name(text, options)


def test_table_name_opens_the_table_of_its_format(tmp_path: Path) -> None:
    assert isinstance(table_name(f"parquet:{tmp_path}", {}).opened(), ParquetDirectory)
    assert isinstance(table_name(f"delta:{tmp_path}", {}).opened(), DeltaLakeTable)
    assert isinstance(table_name("iceberg:lake/db.events", {"type": "in-memory"}).opened(), IcebergTable)


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("parquet:/lake/events", "parquet:file:///lake/events~dlq"),
        ("delta:/lake/events/", "delta:file:///lake/events~dlq"),
        ("delta:s3://me:secret@lake/events?region=here", "delta:s3://lake/events~dlq"),
        ("iceberg:lake/db.events", "iceberg:lake/db.events~dlq"),
    ],
)
def test_dead_letter_table_is_beside_its_table_and_its_name_has_no_secret(text: str, beside: str) -> None:
    assert str(table_name(text, {}).dead_letters()) == beside


def test_dead_letters_are_reached_as_their_table_is() -> None:
    dead = table_name("delta:s3://me:secret@lake/events?region=here", {"timeout": "5s"}).dead_letters()
    assert (dead.place, dead.options) == ("s3://me:secret@lake/events~dlq?region=here", {"timeout": "5s"})
