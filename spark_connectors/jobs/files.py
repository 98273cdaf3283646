"""Rows of a table as files of Parquet, and what a commit has to know of each.

A file grows by row groups, of which one is held in memory, and is closed when it is large enough. Nothing is part of a
table before the driver commits it, so what a task writes needs no other name at first; but who fails leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet, types

from spark_connectors.jobs.digest import Digest, digest_of
from spark_connectors.jobs.table_rows import Form
from spark_connectors.locations import opened

_COMPRESSION: Final = "zstd"


@dataclass(frozen=True)
class Sizes:
    """A file has a row group at least, and is closed when it has so many bytes; a row group has so many at most.

    Bytes of row groups are those in memory, and a row that is larger is a row group of its own.
    """

    file_bytes: int = 128 << 20
    row_group_bytes: int = 64 << 20
    row_group_rows: int = 1_000_000


class ColumnFacts(NamedTuple):
    """Of integers, dates (in days) and timestamps (µs) the least and the greatest as well; None where all are null."""

    nulls: int
    least: int | None = None
    greatest: int | None = None


class FileFacts(NamedTuple):
    """`path` is below the table's location; `columns` are those that are neither lists nor structs."""

    path: str
    rows: int
    size_bytes: int
    digest: Digest
    columns: Mapping[str, ColumnFacts]


def write_files(
    batches: Iterable[pa.RecordBatch], form: Form, location: str, named: Callable[[int], str], sizes: Sizes = Sizes()
) -> tuple[FileFacts, ...]:
    """All of the rows; no file if there are none. `named` says the path of each below the location, by its index.

    Raises OSError, and what `batches` does; then all files that were begun are deleted, as far as that is possible.
    """
    files = _Files(form, location, named, sizes)
    try:
        for row_group in row_groups(batches, sizes):
            files.add(row_group)
        return files.finish()
    except BaseException:
        files.discard()
        raise


def row_groups(batches: Iterable[pa.RecordBatch], sizes: Sizes) -> Iterator[pa.Table]:
    """The same rows in the same order."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for part in _parts(batch, sizes):
            is_full = rows + part.num_rows > sizes.row_group_rows or size_bytes + part.nbytes > sizes.row_group_bytes
            if waiting and is_full:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size_bytes = [], 0, 0
            waiting.append(part)
            rows, size_bytes = rows + part.num_rows, size_bytes + part.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _parts(batch: pa.RecordBatch, sizes: Sizes) -> Iterator[pa.RecordBatch]:
    """None of which is larger than a row group by itself, nor empty."""
    if batch.num_rows > sizes.row_group_rows or (batch.num_rows > 1 and batch.nbytes > sizes.row_group_bytes):
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half), sizes)
        yield from _parts(batch.slice(half), sizes)
    elif batch.num_rows:
        yield batch


class _Files:
    """Of one task. After `finish` or `discard` it is of no more use."""

    def __init__(self, form: Form, location: str, named: Callable[[int], str], sizes: Sizes) -> None:
        self._form = form
        self._system, self._root = opened(location)
        self._paths = map(named, count())
        self._file_bytes = sizes.file_bytes
        self._begun: list[str] = []
        self._current: _File | None = None
        self._written: list[FileFacts] = []

    def add(self, row_group: pa.Table) -> None:
        if self._current is None:
            path = next(self._paths)
            self._begun.append(path)
            self._current = _File(self._form, self._system, self._root, path)
        self._current.add(row_group)
        if self._current.size_bytes >= self._file_bytes:
            self._close()

    def finish(self) -> tuple[FileFacts, ...]:
        if self._current is not None:
            self._close()
        return tuple(self._written)

    def discard(self) -> None:
        if self._current is not None:
            self._current.give_up()
        for path in self._begun:
            with suppress(OSError):
                self._system.delete_file(f"{self._root}/{path}")

    def _close(self) -> None:
        assert self._current is not None
        self._written.append(self._current.close())
        self._current = None


class _File:
    def __init__(self, form: Form, system: Any, root: str, path: str) -> None:
        self._form = form
        self._path = path
        self._digest = Digest()
        self._metadata: list[Any] = []
        whole = f"{root}/{path}"
        system.create_dir(whole.rpartition("/")[0], recursive=True)
        self._stream = system.open_output_stream(whole, compression=None)
        self._writer = parquet.ParquetWriter(
            self._stream, form.schema, compression=_COMPRESSION, metadata_collector=self._metadata
        )

    @property
    def size_bytes(self) -> int:
        """So far."""
        return int(self._stream.tell())

    def add(self, row_group: pa.Table) -> None:
        self._digest += digest_of(row_group, self._form.digested)
        self._writer.write_table(row_group, row_group_size=row_group.num_rows)

    def close(self) -> FileFacts:
        self._writer.close()
        size_bytes = self.size_bytes
        self._stream.close()
        columns = _column_facts(self._form.schema, self._metadata[0])
        return FileFacts(self._path, self._digest.rows, size_bytes, self._digest, columns)

    def give_up(self) -> None:
        """What a writer raises who has failed before, a RuntimeError among others, is not the reason to be told."""
        for one in (self._writer, self._stream):
            with suppress(OSError, RuntimeError, ValueError):
                one.close()


def _column_facts(schema: pa.Schema, metadata: Any) -> dict[str, ColumnFacts]:
    facts = {}
    leaf = 0
    for field in schema:
        if not types.is_nested(field.type):
            groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
            facts[field.name] = _facts_of([group.column(leaf).statistics for group in groups], field.type)
        leaf += _leaves(field.type)
    return facts


def _leaves(kind: pa.DataType) -> int:
    """How many columns of Parquet there are for one of a table."""
    if types.is_nested(kind):
        return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _facts_of(statistics: list[Any], kind: pa.DataType) -> ColumnFacts:
    """Of one for each row group. Bounds are taken as Parquet has them: Python has no year after 9999."""
    nulls = sum(one.null_count for one in statistics)
    bounded = [one for one in statistics if one.has_min_max]
    if not (types.is_integer(kind) or types.is_temporal(kind)) or not bounded:
        return ColumnFacts(nulls)
    return ColumnFacts(nulls, min(one.min_raw for one in bounded), max(one.max_raw for one in bounded))
