"""Tables as after an export, made in one step, and changes of their rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.table_rows import Form
from spark_connectors.jobs.tables.api import Position, Table
from spark_connectors.jobs.tables.facts import NewFile, new_file
from spark_connectors.jobs.tables.parquet import ParquetDirectory
from spark_connectors.jobs.topic_log import TopicLog, rows_in
from spark_connectors.locations import opened

JOB = "nightly"
Change = Callable[[pa.Table], pa.Table]


def unchanged(rows: pa.Table) -> pa.Table:
    return rows


def export(log: TopicLog, table: Table, form: Form, change: Change = unchanged, letters: Table | None = None) -> None:
    """Export the whole log in files of few rows. `change` is applied to the rows of the table first."""
    made = [form.table_rows(batch) for one in log.ranges(_spans(log)) for batch in rows_in(log.options, one)]
    dead = [one.dead for one in made if one.dead is not None]
    if letters is not None and dead:
        _commit(log, letters, pa.Table.from_batches(dead))
    _commit(log, table, change(pa.Table.from_batches([one.rows for one in made], form.schema)))


def _commit(log: TopicLog, table: Table, rows: pa.Table) -> None:
    table.create(rows.schema)
    before = table.progress(JOB)
    positions = [Position(log.topic_id, partition, end) for partition, end in log.ends().items()]
    table.commit(JOB, written(table, rows), before, before.advanced(positions))


def written(table: Table, rows: pa.Table) -> Sequence[NewFile]:
    """Write data files with two row groups each."""
    system, folder = opened(table.data_location())
    system.create_dir(folder, recursive=True)
    found = []
    for begin in range(0, rows.num_rows, 14):
        name = f"{uuid.uuid4().hex}.parquet"
        pq.write_table(rows.slice(begin, 14), f"{folder}/{name}", row_group_size=7, filesystem=system)
        metadata = pq.read_metadata(f"{folder}/{name}", filesystem=system)
        found.append(new_file(name, metadata, system.get_file_info(f"{folder}/{name}").size))
    return found


def _spans(log: TopicLog) -> list[Span]:
    ends = log.ends()
    return [Span(partition, start, ends[partition]) for partition, start in log.starts().items()]


def without(offset: int, partition: int = 0) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        kept = [index for index in range(rows.num_rows) if _place(rows, index) != (partition, offset)]
        return rows.take(kept)

    return change


def with_twice(offset: int, partition: int = 0) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        (index,) = [index for index in range(rows.num_rows) if _place(rows, index) == (partition, offset)]
        return pa.concat_tables([rows, rows.slice(index, 1)])

    return change


def with_value(offset: int, value: bytes, partition: int = 0) -> Change:
    def change(rows: pa.Table) -> pa.Table:
        found = rows.to_pylist()
        for row in found:
            if (row["partition"], row["offset"]) == (partition, offset):
                row["value"] = value
        return pa.Table.from_pylist(found, rows.schema)

    return change


def _place(rows: pa.Table, index: int) -> tuple[int, int]:
    prefix = "" if "partition" in rows.schema.names else "_"
    return rows.column(f"{prefix}partition")[index].as_py(), rows.column(f"{prefix}offset")[index].as_py()


def directory_table(path: Path) -> Table:
    return ParquetDirectory(str(path))
