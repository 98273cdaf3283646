"""Tables of each format in a directory, files of tasks, and readers and writers of other software."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from spark_connectors.jobs.tables.api import Position, Progress, Table
from spark_connectors.jobs.tables.facts import NewFile, new_file
from spark_connectors.jobs.tables.parquet import ParquetDirectory
from spark_connectors.locations import opened

KINDS = ["delta", "iceberg", "parquet"]
CATALOG = "house"
JOB = "nightly"
TOPIC_ID = bytes(range(0xF0, 0x100))  # its halves are negative numbers
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("topic", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
OTHERS = -1  # offset of rows of other writers


@dataclass(frozen=True)
class Lake:
    """A table of one format. It can be sent to other processes."""

    kind: str
    directory: Path

    @property
    def place(self) -> str:
        return str(self.directory / "a table")

    @property
    def catalog(self) -> dict[str, str]:
        """Properties of the catalog, without a pool, whose connections would be closed by the garbage collector."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalog.db?timeout=60",
            "warehouse": f"file://{self.directory}",
            "init_catalog_tables": "true",
            "pool_class": "NullPool",
        }

    def table(self) -> Table:
        """The table as a new process opens it."""
        return _TABLES[self.kind](self)

    def made(self) -> Table:
        table = self.table()
        table.create(SCHEMA)
        return table

    def offsets(self) -> list[int]:
        """Offsets that a reader sees."""
        return sorted(self.rows().column("offset").to_pylist())

    def rows(self) -> pa.Table:
        return _READERS[self.kind](self)

    def append_as_stranger(self) -> None:
        """Append one row as another writer does."""
        _STRANGERS[self.kind](self, rows_of([OTHERS]))


def lake_of(kind: str, directory: Path) -> Lake:
    """A table of this format. Skips the test if the format is not installed."""
    if kind == "delta":
        pytest.importorskip("deltalake", reason="needs deltalake: pip install -r requirements/test.txt")
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs pyiceberg: pip install -r requirements/test.txt")
        pytest.importorskip("sqlalchemy", reason="needs sqlalchemy: pip install -r requirements/test.txt")
    return Lake(kind, directory)


def rows_of(offsets: Sequence[int], schema: pa.Schema = SCHEMA) -> pa.Table:
    rows = [
        {"offset": one, "timestamp": one * 1000, "topic": "events", "value": b"v%d" % one, "headers": []}
        for one in offsets
    ]
    return pa.Table.from_pylist(rows, schema)


def written(table: Table, offsets: Iterable[int], schema: pa.Schema = SCHEMA) -> NewFile:
    """Write a file as a task does."""
    rows = rows_of(list(offsets), schema)
    system, path = opened(table.data_location())
    system.create_dir(path, recursive=True)
    name = f"{uuid.uuid4().hex}.parquet"
    pq.write_table(rows, f"{path}/{name}", filesystem=system)
    metadata = pq.read_metadata(f"{path}/{name}", filesystem=system)
    return new_file(name, metadata, system.get_file_info(f"{path}/{name}").size)


def next_one(before: Progress, offsets: range, partition: int = 0) -> Progress:
    return before.advanced([Position(TOPIC_ID, partition, offsets.stop)])


def export(table: Table, offsets: range) -> Progress:
    """Commit one file after the progress of the job."""
    before = table.progress(JOB)
    after = next_one(before, offsets)
    table.commit(JOB, [written(table, offsets)], before, after)
    return after


def _delta(lake: Lake) -> Table:
    from spark_connectors.jobs.tables.delta import DeltaLakeTable

    return DeltaLakeTable(lake.place)


def _iceberg(lake: Lake) -> Table:
    from spark_connectors.jobs.tables.iceberg import IcebergTable

    return IcebergTable("db.events", CATALOG, lake.catalog)


def stored_iceberg(lake: Lake) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog(CATALOG, **lake.catalog).load_table("db.events")


def _read_delta(lake: Lake) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(lake.place).to_pyarrow_table()


def _write_delta(lake: Lake, rows: pa.Table) -> None:
    from deltalake import write_deltalake

    write_deltalake(lake.place, rows, mode="append")


def _write_iceberg(lake: Lake, rows: pa.Table) -> None:
    """Append rows, with retries while other writers are first."""
    from pyiceberg.exceptions import CommitFailedException

    while True:
        with suppress(CommitFailedException):
            stored_iceberg(lake).append(rows)
            return


def _write_parquet(lake: Lake, rows: pa.Table) -> None:
    pq.write_table(rows, f"{lake.place}/{uuid.uuid4().hex}.parquet")


_TABLES: dict[str, Callable[[Lake], Table]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "parquet": lambda lake: ParquetDirectory(lake.place),
}
_READERS: dict[str, Callable[[Lake], pa.Table]] = {
    "delta": _read_delta,
    "iceberg": lambda lake: stored_iceberg(lake).scan().to_arrow(),
    "parquet": lambda lake: ds.dataset(lake.place, format="parquet").to_table(),
}
_STRANGERS: dict[str, Callable[[Lake, pa.Table], None]] = {
    "delta": _write_delta,
    "iceberg": _write_iceberg,
    "parquet": _write_parquet,
}
