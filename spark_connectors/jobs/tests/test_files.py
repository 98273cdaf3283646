from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.digest import Digest, digest_of
from spark_connectors.jobs.files import ColumnFacts, FileFacts, Sizes, row_groups, write_files
from spark_connectors.jobs.table_rows import JsonForm, RawForm
from spark_connectors.jobs.tests.logs import batch_of_values, log_batch, log_row

RAW = RawForm()
SMALL = Sizes(file_bytes=4000, row_group_bytes=2000, row_group_rows=10)
MAGIC = b"PAR1"  # which a file begins with
_LATEST_US = (2**63 - 1) // 1000 * 1000


def raw_rows(count: int, size: int = 10) -> pa.RecordBatch:
    return RAW.table_rows(batch_of_values([b"%0*d" % (size, index) for index in range(count)])).rows


def named(index: int) -> str:
    return f"some/part-3-{index}.parquet"


def stored_bytes(row_group: Any) -> int:
    return sum(row_group.column(index).total_compressed_size for index in range(row_group.num_columns))


def read(root: Path, facts: tuple[FileFacts, ...]) -> pa.Table:
    """By name: pyarrow would look for partitions in a path."""
    return pa.concat_tables([parquet.ParquetFile(root / one.path).read() for one in facts])


def test_rows_are_in_files_in_their_order(tmp_path: Path) -> None:
    batch = raw_rows(200)
    facts = write_files([batch.slice(0, 50), batch.slice(50)], RAW, str(tmp_path), named, SMALL)
    assert len(facts) > 2
    assert [one.path for one in facts] == [named(index) for index in range(len(facts))]
    assert read(tmp_path, facts).equals(pa.Table.from_batches([batch]))


def test_facts_are_what_is_in_the_files(tmp_path: Path) -> None:
    facts = write_files([raw_rows(200)], RAW, str(tmp_path), named, SMALL)
    for one in facts:
        path = tmp_path / one.path
        table = parquet.ParquetFile(path).read()
        assert (one.rows, one.size_bytes) == (table.num_rows, path.stat().st_size)
        assert one.digest == digest_of(table, RAW.digested)
        offsets = table.column("offset").to_pylist()
        assert one.columns["offset"] == ColumnFacts(0, offsets[0], offsets[-1])
    assert sum((one.digest for one in facts), Digest()) == digest_of(raw_rows(200), RAW.digested)


def test_a_file_is_closed_when_it_is_large_enough(tmp_path: Path) -> None:
    facts = write_files([raw_rows(300)], RAW, str(tmp_path), named, SMALL)
    footers = [parquet.ParquetFile(tmp_path / one.path).metadata for one in facts]
    for footer in footers[:-1]:
        *earlier, last = map(stored_bytes, map(footer.row_group, range(footer.num_row_groups)))
        assert sum(earlier) < SMALL.file_bytes - len(MAGIC) <= sum(earlier) + last


def test_files_are_compressed_with_zstd(tmp_path: Path) -> None:
    (facts,) = write_files([raw_rows(3)], RAW, str(tmp_path), named)
    row_group = parquet.ParquetFile(tmp_path / facts.path).metadata.row_group(0)
    assert {row_group.column(index).compression for index in range(row_group.num_columns)} == {"ZSTD"}


def test_bounds_of_times_may_be_what_python_has_no_time_for(tmp_path: Path) -> None:
    times = pa.array([_LATEST_US, None, -_LATEST_US], RAW.schema.field("timestamp").type)
    rows = RAW.table_rows(log_batch([log_row(offset, key=None) for offset in range(3)])).rows
    rows = rows.set_column(5, "timestamp", times)
    (facts,) = write_files([rows], RAW, str(tmp_path), named)
    assert facts.columns == {
        "key": ColumnFacts(3),
        "value": ColumnFacts(0),
        "topic": ColumnFacts(0),
        "partition": ColumnFacts(0, 1, 1),
        "offset": ColumnFacts(0, 0, 2),
        "timestamp": ColumnFacts(1, -_LATEST_US, _LATEST_US),
        "timestamp_type": ColumnFacts(0, 0, 0),
    }


def test_columns_are_told_apart_whatever_they_are_called(tmp_path: Path) -> None:
    columns = [
        {"name": "a", "type": "struct{b: int64, c: list<int32>}"},
        {"name": "a.b", "type": "int64"},
        {"name": "nothing", "type": "date"},
        {"name": "x", "type": "float64"},
    ]
    form = JsonForm(declared(json.dumps(columns)))
    rows = form.table_rows(batch_of_values([b'{"a": {"b": 1}, "a.b": 7, "x": 1.5}', b'{"a.b": 5}'])).rows
    (facts,) = write_files([rows], form, str(tmp_path), named)
    assert facts.columns["a.b"] == ColumnFacts(0, 5, 7)
    assert facts.columns["nothing"] == ColumnFacts(2)
    assert facts.columns["x"] == ColumnFacts(1)
    assert "a" not in facts.columns
    assert facts.digest == digest_of(read(tmp_path, (facts,)), form.digested)


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert write_files([raw_rows(0)], RAW, str(tmp_path), named) == ()
    assert not list(tmp_path.iterdir())


def test_who_fails_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    others = tmp_path / "some" / "part-2-0.parquet"
    others.touch()

    def failing() -> Iterator[pa.RecordBatch]:
        yield raw_rows(205)
        assert len(list((tmp_path / "some").iterdir())) > 2
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError):
        write_files(failing(), RAW, str(tmp_path), named, SMALL)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [others]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "some").touch()
    with pytest.raises(OSError, match="some"):
        write_files([raw_rows(1)], RAW, str(tmp_path), named)


class FullStream:
    """Takes so many bytes in all files together."""

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
def test_a_disk_that_is_full_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    disk = FullDisk(pa.fs.LocalFileSystem(), room_bytes)
    monkeypatch.setattr("spark_connectors.jobs.files.opened", lambda location: (disk, location))
    with pytest.raises(OSError, match="no space left"):
        write_files([raw_rows(200)], RAW, str(tmp_path), named, SMALL)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@given(st.lists(st.integers(0, 300), max_size=40), st.integers(1, 12), st.integers(100, 2000), st.integers(0, 40))
def test_row_groups_are_no_larger_than_they_should_be(
    lengths: list[int], rows_max: int, bytes_max: int, cut: int
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"x" * length for length in lengths], pa.binary())], ["value"])
    sizes = Sizes(row_group_rows=rows_max, row_group_bytes=bytes_max)
    groups = list(row_groups([batch.slice(0, cut), batch.slice(cut)], sizes))
    for group in groups:
        assert 1 <= group.num_rows <= rows_max
        assert group.nbytes <= bytes_max or group.num_rows == 1
    for one, other in pairwise(groups):
        assert one.num_rows + other.num_rows > rows_max / 4 or one.nbytes + other.nbytes > bytes_max / 4
    assert pa.concat_tables([batch.schema.empty_table(), *groups]).equals(pa.Table.from_batches([batch]))
