"""Task of an export: reads its stretch, and writes the rows to files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.jobs.export.rounds import Stretch, Yield, is_worth_a_file
from spark_connectors.jobs.files import FileWriter, RowGroupSizes
from spark_connectors.jobs.table_rows import DEAD_LETTERS, Form
from spark_connectors.jobs.tables.facts import NewFile
from spark_connectors.jobs.topic_log import rows_in
from spark_connectors.source.options import SourceOptions

_ROW_GROUPS: Final = 2  # in a file, at least


@dataclass(frozen=True)
class DeadPlace:
    """Location of dead letters. Those before `start` are in their table already."""

    location: str
    start: int


@dataclass(frozen=True)
class Task:
    """Task of an export. `options` say how to read; the offsets come from the stretch."""

    options: SourceOptions
    stretch: Stretch
    form: Form
    location: str
    file_bytes: int
    dead: DeadPlace | None = None


class Done(NamedTuple):
    """Result of a task: all rows before `end` are in these files, or are left out."""

    stretch: Stretch
    end: int
    files: tuple[NewFile, ...]
    dead: tuple[NewFile, ...] = ()
    skipped: int = 0

    @property
    def shown(self) -> Yield:
        """Yield of the stretch, for the next rounds."""
        return Yield(self.stretch, self.end, sum(one.size_bytes for one in (*self.files, *self.dead)))


def run(task: Task) -> Done:
    """Read and write a stretch. Raises OSError, and the errors of reading."""
    return write(task, _rows(task))


def _rows(task: Task) -> Iterator[pa.RecordBatch]:
    for one in task.stretch.ranges:
        yield from rows_in(task.options, one)


def write(task: Task, batches: Iterable[pa.RecordBatch]) -> Done:
    """Write rows of the task's stretch, in the order of their offsets. If anything fails, the files are deleted."""
    writing = _Writing(task)
    try:
        for batch in batches:
            if not writing.add(batch):
                return writing.finish(writing.reached)
        return writing.finish(task.stretch.end)
    except BaseException:
        writing.discard()
        raise


class _Writing:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._rows = _writer(task, task.form.schema, task.location)
        self._dead = None if task.dead is None else _writer(task, DEAD_LETTERS, task.dead.location)
        self._skipped = 0
        self.reached = task.stretch.start  # the next offset

    def add(self, batch: pa.RecordBatch) -> bool:
        """Write the rows of a batch. False: an open stretch ends here, because a file is full."""
        found = self._task.form.table_rows(batch)
        self._rows.add(found.rows)
        if found.dead is not None:
            self._add_dead(found.dead)
        self._skipped += found.skipped
        self.reached = batch.column("offset")[-1].as_py() + 1
        full = [one for one in self._writers if self._is_full(one)]
        if self._task.stretch.is_open:
            return not full
        for one in full:
            one.close_file()
        return True

    def finish(self, end: int) -> Done:
        files = self._rows.finish()
        dead = () if self._dead is None else self._dead.finish()
        return Done(self._task.stretch, end, files, dead, self._skipped)

    def discard(self) -> None:
        for one in self._writers:
            one.discard()

    @property
    def _writers(self) -> list[FileWriter]:
        return [self._rows] if self._dead is None else [self._rows, self._dead]

    def _add_dead(self, letters: pa.RecordBatch) -> None:
        assert self._dead is not None, "a form with dead letters has a place for them"
        assert self._task.dead is not None
        self._dead.add(letters.filter(pc.greater_equal(letters.column("offset"), self._task.dead.start)))

    def _is_full(self, writer: FileWriter) -> bool:
        """Whether a file is full, and the expected rest of the stretch is worth a file of its own."""
        if writer.file_bytes < self._task.file_bytes:
            return False
        stretch = self._task.stretch
        left = (stretch.end - self.reached) / (self.reached - stretch.start)
        return is_worth_a_file((writer.closed_bytes + writer.file_bytes) * left, self._task.file_bytes)


def _writer(task: Task, schema: pa.Schema, location: str) -> FileWriter:
    """Writer of files. Their names show the origin, and are unique, because a task may run again."""
    stretch, unique = task.stretch, uuid.uuid4().hex
    sizes = RowGroupSizes()
    return FileWriter(
        schema,
        location,
        lambda index: f"part-{stretch.partition}-{stretch.start}-{unique}-{index}.parquet",
        RowGroupSizes(min(sizes.size_bytes, max(task.file_bytes // _ROW_GROUPS, 1)), sizes.rows),
    )
