from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.files import FileWriter, RowGroups, RowGroupSizes
from spark_connectors.jobs.table_rows import JsonForm, RawForm
from spark_connectors.jobs.tables.facts import Column, NewFile
from spark_connectors.jobs.tests.logs import batch_of_values, log_batch, log_row

RAW = RawForm()
SCHEMA = RAW.schema
SMALL = RowGroupSizes(2000, 10)
FILE_BYTES = 4000
_LATEST_US = (2**63 - 1) // 1000 * 1000


def raw_rows(count: int, size: int = 10) -> pa.RecordBatch:
    return RAW.table_rows(batch_of_values([b"%0*d" % (size, index) for index in range(count)])).rows


def named(index: int) -> str:
    return f"part-3-{index}.parquet"


def written(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, location: Path, sizes: RowGroupSizes | None = None
) -> tuple[NewFile, ...]:
    """Write rows as a task does."""
    writer = FileWriter(schema, str(location), named, sizes)
    try:
        for batch in batches:
            writer.add(batch)
            if writer.file_bytes >= FILE_BYTES:
                writer.close_file()
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def cut(batch: pa.RecordBatch, rows: int = 10) -> list[pa.RecordBatch]:
    return [batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows)]


def read(root: Path, files: tuple[NewFile, ...]) -> pa.Table:
    """Read each file by name: pyarrow would look for partitions in a path."""
    return pa.concat_tables([parquet.ParquetFile(root / one.path).read() for one in files])


def test_rows_are_in_files_in_their_order(tmp_path: Path) -> None:
    batch = raw_rows(200)
    files = written(cut(batch), SCHEMA, tmp_path, SMALL)
    assert len(files) > 2
    assert [one.path for one in files] == [named(index) for index in range(len(files))]
    assert read(tmp_path, files).equals(pa.Table.from_batches([batch]))


def test_file_facts_match_the_content_of_the_files(tmp_path: Path) -> None:
    files = written(cut(raw_rows(200)), SCHEMA, tmp_path, SMALL)
    for file in files:
        path = tmp_path / file.path
        table = parquet.ParquetFile(path).read()
        assert (file.rows, file.size_bytes) == (table.num_rows, path.stat().st_size)
        offsets = table.column("offset").to_pylist()
        assert file.columns["offset"] == Column(0, offsets[0], offsets[-1])


def test_writer_knows_the_sizes_of_its_open_and_closed_files(tmp_path: Path) -> None:
    writer = FileWriter(SCHEMA, str(tmp_path), named, SMALL)
    assert (writer.file_bytes, writer.closed_bytes) == (0, 0)
    for batch in cut(raw_rows(30)):
        writer.add(batch)
    begun_bytes = writer.file_bytes
    assert begun_bytes > 0
    writer.close_file()
    assert writer.file_bytes == 0
    first_bytes = writer.closed_bytes
    assert first_bytes > begun_bytes
    first, second = writer.finish()
    assert first.size_bytes == first_bytes
    assert (first.rows, second.rows) == (20, 10)


def test_files_are_compressed_with_zstd(tmp_path: Path) -> None:
    (one,) = written([raw_rows(3)], SCHEMA, tmp_path)
    row_group = parquet.ParquetFile(tmp_path / one.path).metadata.row_group(0)
    assert {row_group.column(index).compression for index in range(row_group.num_columns)} == {"ZSTD"}


def test_files_are_written_without_pandas(tmp_path: Path) -> None:
    """Importing pandas takes as long as writing a million rows."""
    script = (
        "import sys\n"
        "from engine.batches.batch import Record\n"
        "from spark_connectors.jobs.files import FileWriter\n"
        "from spark_connectors.records.tests.written import ALL, batch, record_batches\n"
        "(rows,) = record_batches(batch(Record(b'key', b'value', 1)))\n"
        "writer = FileWriter(ALL, sys.argv[1], lambda _: 'one.parquet')\n"
        "writer.add(rows)\n"
        "(file,) = writer.finish()\n"
        "assert file.columns['timestamp'].least and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], timeout=60, check=True)


def test_times_for_which_python_has_none_are_no_bounds(tmp_path: Path) -> None:
    times = pa.array([_LATEST_US, None, -_LATEST_US], RAW.schema.field("timestamp").type)
    rows = RAW.table_rows(log_batch([log_row(offset, key=None) for offset in range(3)])).rows
    (one,) = written([rows.set_column(5, "timestamp", times)], SCHEMA, tmp_path)
    assert one.columns == {
        "key": Column(3),
        "value": Column(0),
        "topic": Column(0, "orders", "orders"),
        "partition": Column(0, 1, 1),
        "offset": Column(0, 0, 2),
        "timestamp": Column(1),
        "timestamp_type": Column(0, 0, 0),
    }


def test_columns_with_dots_in_their_names_have_separate_facts(tmp_path: Path) -> None:
    columns = [
        {"name": "a", "type": "struct{b: int64, c: list<int32>}"},
        {"name": "a.b", "type": "int64"},
        {"name": "nothing", "type": "date"},
        {"name": "x", "type": "float64"},
    ]
    form = JsonForm(declared(json.dumps(columns)))
    rows = form.table_rows(batch_of_values([b'{"a": {"b": 1}, "a.b": 7, "x": 1.5}', b'{"a.b": 5}'])).rows
    files = written([rows], form.schema, tmp_path)
    found = files[0].columns
    assert found["a.b"] == Column(0, 5, 7)
    assert found["nothing"] == Column(2)
    assert found["x"] == Column(1)
    assert "a" not in found
    assert read(tmp_path, files).equals(pa.Table.from_batches([rows]))


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert written([raw_rows(0)], SCHEMA, tmp_path) == ()
    assert not list(tmp_path.iterdir())


def test_discarded_writer_deletes_only_its_own_files(tmp_path: Path) -> None:
    others = tmp_path / "part-2-0.parquet"
    others.touch()
    writer = FileWriter(SCHEMA, str(tmp_path), named, SMALL)
    for batch in cut(raw_rows(40)):
        writer.add(batch)
        writer.close_file()
    assert len(list(tmp_path.iterdir())) > 2
    writer.discard()
    assert list(tmp_path.iterdir()) == [others]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "some").touch()
    with pytest.raises(OSError, match="some"):
        written([raw_rows(1)], SCHEMA, tmp_path / "some")


class FullStream:
    """Stream that takes a number of bytes in all files together."""

    def __init__(self, inner: Any, disk: FullDisk) -> None:
        self._inner = inner
        self._disk = disk
        self.closed = False

    def write(self, data: Any) -> int:
        self._disk.room_bytes -= len(memoryview(data))
        if self._disk.room_bytes < 0:
            raise OSError("no space left")
        return int(self._inner.write(data))

    def tell(self) -> int:
        return int(self._inner.tell())

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True
        self._inner.close()

    def writable(self) -> bool:
        return True


class FullDisk:
    def __init__(self, inner: Any, room_bytes: int) -> None:
        self._inner = inner
        self.room_bytes = room_bytes

    def open_output_stream(self, path: str, compression: None) -> Any:
        return pa.PythonFile(FullStream(self._inner.open_output_stream(path, compression=compression), self), "w")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("room_bytes", range(0, 9000, 500))
def test_write_to_a_full_disk_raises_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    disk = FullDisk(pa.fs.LocalFileSystem(), room_bytes)
    monkeypatch.setattr("spark_connectors.jobs.files.opened", lambda location: (disk, location))
    with pytest.raises(OSError, match="no space left"):
        written(cut(raw_rows(200)), SCHEMA, tmp_path, SMALL)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 12), st.integers(100, 2000), st.integers(0, 40))
def test_row_groups_are_no_larger_than_they_should_be(
    lengths: list[int], rows_max: int, bytes_max: int, border: int
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * length for length in lengths], pa.binary())], ["value"])
    grouping = RowGroups(RowGroupSizes(bytes_max, rows_max))
    groups = [*grouping.of(batch.slice(0, border)), *grouping.of(batch.slice(border)), *grouping.rest()]
    for group in groups:
        assert 1 <= group.num_rows <= rows_max
        assert group.nbytes <= bytes_max or group.num_rows == 1
    for one, other in pairwise(groups):
        assert one.num_rows + other.num_rows > rows_max / 4 or one.nbytes + other.nbytes > bytes_max / 4
    assert pa.concat_tables([batch.schema.empty_table(), *groups]).equals(pa.Table.from_batches([batch]))
