"""A log and tables for exports. Rows are in files, and everything else is in memory, where it can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_connectors.jobs.export.driver import Export, Target
from spark_connectors.jobs.export.tasks import Done, Task, write
from spark_connectors.jobs.export.wanted import ExportPlan
from spark_connectors.jobs.table_rows import Form, RawForm
from spark_connectors.jobs.tables.api import Place, Progress
from spark_connectors.jobs.tables.appending import superseded
from spark_connectors.jobs.tables.errors import CommitUnknown
from spark_connectors.jobs.tables.facts import NewFile
from spark_connectors.jobs.tests.logs import log_batch, log_row
from spark_connectors.jobs.workers import OneByOne, Workers
from spark_connectors.source.options import SourceOptions, source_options
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import TopicPartition
from spark_connectors.wire.tests.fakes import FakeClock

TOPIC = "orders"
JOB = "nightly"
TOPIC_ID = bytes(range(16))
FILE_BYTES = 40_000
BATCH_ROWS = 10

Values = Mapping[int, Sequence[bytes | None]]


class Killed(BaseException):
    """End of a process. No code catches it."""


@dataclass
class Steps:
    """Steps of an export with an effect outside. One of them may be the last, before or after its effect."""

    last: int | None = None
    is_done: bool = False
    error: BaseException = field(default_factory=Killed)
    count: int = 0

    def step(self, action: Callable[[], Any]) -> Any:
        self.count += 1
        if self.count != self.last:
            return action()
        if self.is_done:
            action()
        raise self.error


class MemoryTable:
    """Implements `spark_connectors.jobs.tables.api.Table`. A commit is visible at once, as in a store."""

    def __init__(self, directory: Path) -> None:
        self.steps = Steps()
        self.before_commits: list[Callable[[], object]] = []  # called before a commit, once each
        self.unanswered = 0  # commits that are taken without an answer
        self.refused = 0  # commits that are not taken, without an answer
        self.taken: list[NewFile] = []
        self._directory = directory
        self._schema: pa.Schema | None = None
        self._progress: dict[str, Progress] = {}

    def schema(self) -> pa.Schema | None:
        return self._schema

    def create(self, schema: pa.Schema) -> None:
        self.steps.step(lambda: None)
        self._schema = self._schema or schema

    def progress(self, job: str) -> Progress:
        found: Progress = self.steps.step(lambda: self._progress.get(job, Progress()))
        return found

    def data_location(self) -> str:
        return str(self._directory)

    def commit(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        if self.before_commits:
            self.before_commits.pop(0)()
        if self.refused:
            self.refused -= 1
            raise CommitUnknown("no answer")
        self.steps.step(lambda: self._take(job, files, before, after))
        if self.unanswered:
            self.unanswered -= 1
            raise CommitUnknown("no answer")

    def files(self) -> tuple[str, ...]:
        return tuple(f"{self._directory}/{one.path}" for one in self.taken)

    def sweep(self, older_than_s: float) -> int:
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """Rows in the order of partitions and offsets."""
        return [row for path in self.files() for row in pq.ParquetFile(path).read().to_pylist()]

    def _take(self, job: str, files: Sequence[NewFile], before: Progress, after: Progress) -> None:
        now = self._progress.get(job, Progress())
        if now != before:
            raise superseded(job, before, now)
        assert self._schema is not None
        assert all(one.schema == self._schema for one in files)
        self._progress[job] = after
        self.taken += files


@dataclass
class Lake:
    """A log with `values` by partition, with offsets from 0 on, and the tables of its export."""

    directory: Path
    values: Values
    form: Form = field(default_factory=RawForm)
    has_dead: bool = False
    file_bytes: int = FILE_BYTES
    ends: dict[int, int] = field(default_factory=dict)  # ends of partitions, before those of all values
    table: MemoryTable = field(init=False)
    dead: MemoryTable = field(init=False)
    tasks: list[Task] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.table = MemoryTable(self.directory / "rows")
        self.dead = MemoryTable(self.directory / "dead")

    @property
    def target(self) -> Target:
        return Target(JOB, self.form, self.table, self.dead if self.has_dead else None)

    def wanted(self, topic_id: bytes = TOPIC_ID) -> ExportPlan:
        ranges = [
            OffsetRange(TopicPartition(TOPIC, number), topic_id, 0, self.ends.get(number, len(values)))
            for number, values in self.values.items()
        ]
        return ExportPlan(topic_id, ranges, {Place(topic_id, one.place.partition): 0 for one in ranges})

    def export(
        self, workers: Workers | None = None, task: Callable[[Task], Done] | None = None, topic_id: bytes = TOPIC_ID
    ) -> Export:
        """Run an export from beginning to end."""
        target = self.target
        target.create()
        job = Export(
            options(),
            target,
            self.wanted(topic_id),
            workers or OneByOne(),
            file_bytes=self.file_bytes,
            task=task or self.do,
            clock=self.clock,
        )
        job.run()
        return job

    def do(self, task: Task) -> Done:
        self.tasks.append(task)
        found: Done = self.table.steps.step(lambda: write(task, self.batches(task)))
        return found

    def batches(self, task: Task) -> Iterator[pa.RecordBatch]:
        for one in task.stretch.ranges:
            values = self.values[one.place.partition]
            for start in range(one.start, one.end, BATCH_ROWS):
                offsets = range(start, min(start + BATCH_ROWS, one.end))
                rows = [log_row(at, partition=one.place.partition, value=values[at]) for at in offsets]
                yield log_batch(rows)

    def fail_at(self, steps: Steps) -> None:
        """Set the steps of both tables and of the tasks."""
        self.table.steps = self.dead.steps = steps


def options() -> SourceOptions:
    return source_options({"kafka.bootstrap.servers": "one:9092", "subscribe": TOPIC}, is_stream=False)


def places_of(rows: Sequence[Mapping[str, Any]], mark: str = "") -> list[tuple[int, int]]:
    """Partition and offset of each row, in order."""
    return sorted((row[f"{mark}partition"], row[f"{mark}offset"]) for row in rows)
