"""Reads of the sides by tasks, and reads that are skipped."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install -r requirements/spark.txt")

from pyspark import cloudpickle

from spark_connectors.jobs.comparison.search import CellRead
from spark_connectors.jobs.comparison.sides import DEAD, Bounds, FilePart, LogSide, TableSide, columns_of
from spark_connectors.jobs.comparison.tests.exports import directory_table, export
from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.spans import Span
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, JsonForm, RawForm
from spark_connectors.jobs.tests.logs import log_batch, log_row
from spark_connectors.jobs.tests.tiers import TOPIC, log_of, options_of, tier_of
from spark_connectors.jobs.topic_log import TopicLog

RAW = RawForm()
LOOK = CellRead((Span(0, 0, 100), Span(1, 0, 100)), 10)


def file_of(directory: Path, rows: pa.RecordBatch, **written: object) -> str:
    path = directory / "rows.parquet"
    pq.write_table(pa.Table.from_batches([rows]), path, **written)
    return str(path)


def part(directory: Path, file: str, *spans: Span) -> FilePart:
    return FilePart(str(directory), file, TOPIC, RAW, 0, spans, 10)


def test_only_row_groups_that_may_have_a_row_are_read(tmp_path: Path) -> None:
    rows = RAW.table_rows(log_batch([log_row(offset, topic=TOPIC) for offset in range(100)])).rows
    file = file_of(tmp_path, rows, row_group_size=10)
    found = part(tmp_path, file, Span(1, 25, 31)).read()
    assert found.bounds == tuple(Bounds((1, 1), (begin, begin + 9)) for begin in range(0, 100, 10))
    assert (found.sums.numbers.tolist(), found.sums.rows.tolist(), found.rows) == ([2, 3], [5, 1], 100)
    damaged = bytearray(Path(file).read_bytes())
    damaged[4:2000] = bytes(1996)  # the first row groups
    Path(file).write_bytes(damaged)
    assert part(tmp_path, file, Span(1, 80, 100)).read().sums.row_count == 20


def test_file_without_statistics_is_read_and_missing_columns_are_null(tmp_path: Path) -> None:
    rows = RAW.table_rows(log_batch([log_row(offset, topic=TOPIC, headers=None) for offset in range(10)])).rows
    whole = part(tmp_path, file_of(tmp_path, rows), Span(1, 0, 10)).read()
    file = file_of(tmp_path, rows.drop_columns(["headers"]), write_statistics=False)
    assert [each.tolist() for each in part(tmp_path, file, Span(1, 0, 10)).read().sums] == [
        each.tolist() for each in whole.sums
    ]


def test_sums_do_not_depend_on_how_a_writer_encodes_the_same_rows(tmp_path: Path) -> None:
    """Text and bytes as views, as from deltalake, and an empty list in place of null headers, as from pyiceberg."""
    header = {"key": "h", "value": b"x"}
    logged = [log_row(offset, topic=TOPIC, headers=[header] if offset % 2 else None) for offset in range(10)]
    rows = RAW.table_rows(log_batch(logged)).rows
    plain = part(tmp_path, file_of(tmp_path, rows), Span(1, 0, 10)).read()
    kinds = {"key": pa.binary_view(), "value": pa.binary_view(), "topic": pa.string_view()}
    schema = pa.schema([one.with_type(kinds.get(one.name, one.type)) for one in rows.schema])
    empty = [row | {"headers": row["headers"] or []} for row in rows.to_pylist()]
    again = part(tmp_path, file_of(tmp_path, pa.RecordBatch.from_pylist(empty, schema)), Span(1, 0, 10)).read()
    assert [each.tolist() for each in again.sums] == [each.tolist() for each in plain.sums]
    assert again.sums.row_count == 10


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
def test_a_file_is_named_by_a_path_or_a_url(tmp_path: Path, prefix: str) -> None:
    rows = RAW.table_rows(log_batch([log_row(1, topic=TOPIC)])).rows
    assert part(tmp_path, prefix + file_of(tmp_path, rows), Span(1, 0, 10)).read().sums.row_count == 1


def test_file_without_rows_in_the_spans_is_not_opened_again(tmp_path: Path) -> None:
    bucket = tier_of(tmp_path / "tier", [log_of([b"v"] * 30), log_of([b"v"] * 30)])
    table = directory_table(tmp_path / "table")
    with TopicLog(options_of(bucket)) as log:
        export(log, table, RAW)
    side = TableSide(table, RAW, TOPIC)
    parts = side.parts(LOOK)
    assert len(parts) == len(table.files()) > 4
    for one in parts:
        side.has_read(one, one.read())
    assert (side.rows, side.compared) == (60, 60)
    assert 0 < len(side.parts(CellRead((Span(1, 7, 8),), 1))) < len(parts)
    assert side.parts(CellRead((Span(DEAD, 7, 8),), 1)) == []


def test_each_row_is_found_again_by_its_offset(tmp_path: Path) -> None:
    """The row may be in any row group of its file, and be the first or the last one there."""
    bucket = tier_of(tmp_path / "tier", [log_of([b"v"] * 30), log_of([b"v"] * 30)])
    table = directory_table(tmp_path / "table")
    with TopicLog(options_of(bucket)) as log:
        export(log, table, RAW)
    side = TableSide(table, RAW, TOPIC)
    for one in side.parts(LOOK):
        side.has_read(one, one.read())
    places = [(partition, offset) for partition in (0, 1) for offset in range(30)]
    looks = [CellRead((Span(partition, offset, offset + 1),), 1) for partition, offset in places]
    assert [sum(one.read().sums.row_count for one in side.parts(request)) for request in looks] == [1] * len(places)


def test_log_parts_can_be_pickled_and_end_at_the_log_end(tmp_path: Path) -> None:
    bucket = tier_of(tmp_path / "tier", [log_of([b'{"id": 1}'] * 12 + [b"dead"] * 3)])
    form = JsonForm(declared(json.dumps([{"name": "id", "type": "int64"}]), taken=ORIGIN_COLUMNS))
    with TopicLog(options_of(bucket, **{"segments.splitBytes": "1"})) as log:
        side = LogSide(log, form, columns_of(form), 1)
        parts = side.parts(CellRead((Span(0, 3, 100), Span(DEAD, 0, 14), Span(7, 0, 9)), 1))
        assert [part.size for part in parts] == [10, 5]
        for one in parts:
            side.has_read(one, cloudpickle.loads(cloudpickle.dumps(one)).read())
        assert side.starts() == {0: 0, DEAD: 0}
    assert (side.rows, side.dead) == (15, 3)
    rows = parts[-1].read().sums
    assert list(zip(rows.partitions.tolist(), rows.numbers.tolist(), strict=True)) == [
        (0, 10),
        (0, 11),
        (DEAD, 12),
        (DEAD, 13),
    ]
