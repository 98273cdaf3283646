"""Rows of a table as Parquet files, with the facts that a commit needs.

A file grows by row groups, of which one is held in memory, until its writer closes it. A file belongs to a table only
after the driver has committed it, so a task writes it under its final name. A task that fails deletes its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from spark_connectors.jobs.dictionaries import with_dictionary
from spark_connectors.jobs.tables.facts import NewFile, new_file
from spark_connectors.locations import opened

_COMPRESSION: Final = "zstd"


@dataclass(frozen=True)
class RowGroupSizes:
    """Limits of a row group. `size_bytes` counts memory. A larger row is a row group of its own."""

    size_bytes: int = 64 << 20
    rows: int = 1_000_000


class FileWriter:
    """Writer of the files of one task. After `finish` or `discard`, it cannot be used any more."""

    def __init__(
        self, schema: pa.Schema, location: str, name_of: Callable[[int], str], sizes: RowGroupSizes | None = None
    ) -> None:
        """`name_of` returns the name of each file in the location, by its index. Raises OSError."""
        self._schema = schema
        self._system, self._root = opened(location)
        self._names = map(name_of, count())
        self._row_groups = RowGroups(sizes or RowGroupSizes())
        self._started: list[str] = []
        self._current: _File | None = None
        self._written: list[NewFile] = []

    @property
    def file_bytes(self) -> int:
        """Bytes of the current file so far; 0 without a current file."""
        return 0 if self._current is None else self._current.size_bytes

    @property
    def closed_bytes(self) -> int:
        """Bytes of all closed files."""
        return sum(one.size_bytes for one in self._written)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows. Raises OSError."""
        for row_group in self._row_groups.of(rows):
            self._put(row_group)

    def close_file(self) -> None:
        """Close the current file. Rows of an incomplete row group go into the next file. Raises OSError."""
        if self._current is not None:
            self._written.append(self._current.close())
            self._current = None

    def finish(self) -> tuple[NewFile, ...]:
        """Write the remaining rows. Returns all files, none if there were no rows. Raises OSError."""
        for row_group in self._row_groups.rest():
            self._put(row_group)
        self.close_file()
        return tuple(self._written)

    def discard(self) -> None:
        """Delete all begun files, as far as possible."""
        if self._current is not None:
            self._current.give_up()
        for name in self._started:
            with suppress(OSError):
                self._system.delete_file(f"{self._root}/{name}")

    def _put(self, row_group: pa.Table) -> None:
        if self._current is None:
            name = next(self._names)
            self._started.append(name)
            self._current = _File(self._schema, self._system, self._root, name, with_dictionary(row_group))
        self._current.add(row_group)


class RowGroups:
    """Regroups rows into row groups, in the same order."""

    def __init__(self, sizes: RowGroupSizes) -> None:
        self._sizes = sizes
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._size_bytes = 0

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Row groups that are complete with this batch."""
        for part in _parts(batch, self._sizes):
            if self._is_full_with(part):
                yield from self.rest()
            self._waiting.append(part)
            self._rows += part.num_rows
            self._size_bytes += part.nbytes

    def rest(self) -> Iterator[pa.Table]:
        """The incomplete row group, if there is one."""
        if self._waiting:
            found = pa.Table.from_batches(self._waiting)
            self._waiting, self._rows, self._size_bytes = [], 0, 0
            yield found

    def _is_full_with(self, part: pa.RecordBatch) -> bool:
        sizes = self._sizes
        rows: int = self._rows + part.num_rows
        size_bytes: int = self._size_bytes + part.nbytes
        return rows > sizes.rows or size_bytes > sizes.size_bytes


def _parts(batch: pa.RecordBatch, sizes: RowGroupSizes) -> Iterator[pa.RecordBatch]:
    """Parts of a batch. None is larger than a row group, and none is empty."""
    if batch.num_rows > sizes.rows or (batch.num_rows > 1 and batch.nbytes > sizes.size_bytes):
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half), sizes)
        yield from _parts(batch.slice(half), sizes)
    elif batch.num_rows:
        yield batch


class _File:
    def __init__(self, schema: pa.Schema, system: Any, root: str, name: str, with_dictionary: list[str]) -> None:
        self._name = name
        self._metadata: list[Any] = []
        system.create_dir(root, recursive=True)
        self._stream = system.open_output_stream(f"{root}/{name}", compression=None)
        self._writer = parquet.ParquetWriter(
            self._stream,
            schema,
            compression=_COMPRESSION,
            use_dictionary=with_dictionary,
            metadata_collector=self._metadata,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes so far."""
        return int(self._stream.tell())

    def add(self, row_group: pa.Table) -> None:
        self._writer.write_table(row_group, row_group_size=row_group.num_rows)

    def close(self) -> NewFile:
        self._writer.close()
        size_bytes = self.size_bytes
        self._stream.close()
        return new_file(self._name, self._metadata[0], size_bytes)

    def give_up(self) -> None:
        """Close without errors: after a failed write, errors of closing (RuntimeError among others) would hide the
        reason.
        """
        for one in (self._writer, self._stream):
            with suppress(OSError, RuntimeError, ValueError):
                one.close()
