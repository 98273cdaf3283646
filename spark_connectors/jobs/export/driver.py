"""Rounds of an export and their commits: dead letters first, then rows, each with the end offsets.

A new run reads the progress from the tables. Rows count from the progress of their table, dead letters from that of
theirs. If a run died between the two commits, the table of dead letters is ahead, and these letters are not written
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_connectors.jobs.export.rounds import TASKS_PER_WORKER, Density, Stretch, left_of, round_of
from spark_connectors.jobs.export.tasks import DeadPlace, Done, Task, run
from spark_connectors.jobs.export.wanted import ExportPlan, check_topic
from spark_connectors.jobs.table_rows import DEAD_LETTERS, Form
from spark_connectors.jobs.tables.api import Place, Position, Progress, Table, check_job
from spark_connectors.jobs.tables.errors import CommitUnknown
from spark_connectors.jobs.tables.facts import NewFile
from spark_connectors.jobs.tables.schemas import check_fits, with_microseconds
from spark_connectors.jobs.workers import Workers
from spark_connectors.source.options import SourceOptions
from spark_connectors.wire.clock import Clock, SystemClock

ATTEMPTS: Final = 5  # at a commit with an unknown outcome
PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Target:
    """Tables of an export. `dead`: table of dead letters, for forms that have some."""

    job: str
    form: Form
    table: Table
    dead: Table | None = None

    def check(self) -> None:
        """Check that existing tables can be appended to. Raises ValueError, SchemaRefused."""
        check_job(self.job)
        for table, schema in self._tables():
            found = table.schema()
            if found is not None:
                check_fits(with_microseconds(schema), found)

    def create(self) -> None:
        """Create the missing tables. Raises ValueError, SchemaRefused, TableRefused."""
        check_job(self.job)
        for table, schema in self._tables():
            table.create(schema)
        self.check()

    def progress(self) -> Progress:
        return self.table.progress(self.job)

    def dead_progress(self) -> Progress:
        return Progress() if self.dead is None else self.dead.progress(self.job)

    def sweep(self, older_than_s: float) -> int:
        """Delete files that are older and that no commit names. Returns their number."""
        return sum(table.sweep(older_than_s) for table, _ in self._tables())

    def _tables(self) -> list[tuple[Table, pa.Schema]]:
        dead = [] if self.dead is None else [(self.dead, DEAD_LETTERS)]
        return [(self.table, self.form.schema), *dead]


@dataclass
class Totals:
    """Counts of the committed work of a run."""

    rows: int = 0
    dead_letters: int = 0
    skipped: int = 0
    files: int = 0
    file_bytes: int = 0
    offsets: int = 0
    commits: int = 0

    def add(self, done: Sequence[Done], offsets: int) -> None:
        files = [file for one in done for file in one.files]
        self.rows += _rows(files)
        self.dead_letters += sum(_rows(one.dead) for one in done)
        self.skipped += sum(one.skipped for one in done)
        self.files += len(files)
        self.file_bytes += sum(one.size_bytes for one in files)
        self.offsets += offsets
        self.commits += 1


class Export:
    """A run of an export, up to the end of `wanted`. It calls `on_progress` now and then with the numbers of written
    offsets and rows.
    """

    def __init__(
        self,
        options: SourceOptions,
        target: Target,
        wanted: ExportPlan,
        workers: Workers,
        *,
        file_bytes: int,
        task: Callable[[Task], Done] = run,
        on_progress: Callable[[int, int], None] = lambda offsets, rows: None,
        clock: Clock | None = None,
    ) -> None:
        self.totals = Totals()
        self._options = options
        self._target = target
        self._wanted = wanted
        self._workers = workers
        self._file_bytes = file_bytes
        self._task = task
        self._on_progress = on_progress
        self._clock = clock or SystemClock()
        self._density = Density()

    def run(self) -> None:
        """Export round by round. Raises Superseded, CommitUnknown, other errors of tables, and the errors of tasks.
        Committed rounds stay committed, and another run continues behind them.
        """
        while self._round(self._target.progress(), self._target.dead_progress()):
            pass

    def _round(self, before: Progress, dead_before: Progress) -> bool:
        """Export one round. False: there is nothing left to do."""
        for progress in (before, dead_before):
            check_topic(progress, self._target.job, self._wanted.topic_id)
        reached = {**self._wanted.starts, **before.offsets}
        ranges = left_of(self._wanted.ranges, {place.partition: offset for place, offset in reached.items()})
        if not ranges and reached == before.offsets:
            return False
        stretches = round_of(ranges, self._density, self._file_bytes, self._workers.count * TASKS_PER_WORKER)
        done = self._done(self._tasks(stretches, dead_before))
        self._density = self._density.after([one.shown for one in done])
        ends = {**reached, **{Place(self._wanted.topic_id, one.stretch.partition): one.end for one in _in_order(done)}}
        if self._commit_dead(done, dead_before, ends):
            files = [file for one in done for file in one.files]
            after = before.advanced(Position(*place, offset) for place, offset in ends.items())
            if self._is_committed(self._target.table, files, before, after):
                self.totals.add(done, sum(one.end - one.stretch.start for one in done))
        return True

    def _tasks(self, stretches: Sequence[Stretch], dead_before: Progress) -> list[Task]:
        target = self._target
        location = target.table.data_location()
        dead_location = None if target.dead is None else target.dead.data_location()
        tasks = []
        for one in stretches:
            start = dead_before.offsets.get(Place(self._wanted.topic_id, one.partition), 0)
            dead = None if dead_location is None else DeadPlace(dead_location, start)
            tasks.append(Task(self._options, one, target.form, location, self._file_bytes, dead))
        return tasks

    def _done(self, tasks: Sequence[Task]) -> list[Done]:
        done = []
        offsets, rows = self.totals.offsets, self.totals.rows
        for one in self._workers.map(self._task, tasks):
            done.append(one)
            offsets, rows = offsets + one.end - one.stretch.start, rows + _rows(one.files)
            self._on_progress(offsets, rows)
        return done

    def _commit_dead(self, done: Sequence[Done], before: Progress, ends: dict[Place, int]) -> bool:
        """Commit the dead letters, if there are some. False: the round has to be done again."""
        files = [file for one in done for file in one.dead]
        if not files:
            return True
        assert self._target.dead is not None
        positions = (Position(*place, max(end, before.offsets.get(place, 0))) for place, end in ends.items())
        return self._is_committed(self._target.dead, files, before, before.advanced(positions))

    def _is_committed(self, table: Table, files: Sequence[NewFile], before: Progress, after: Progress) -> bool:
        """Commit files and progress. False: the progress of the job has changed meanwhile, by this commit or by another
        run. If a commit has an unknown outcome, it is tried again only while the progress is still `before`, so it is
        not taken twice.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                table.commit(self._target.job, files, before, after)
                return True
            except CommitUnknown:
                now = table.progress(self._target.job)
                if now != before:
                    return now == after
                if attempt == ATTEMPTS:
                    raise
            self._clock.sleep(PAUSE_S)
        raise AssertionError("the last attempt has returned, or raised")


def _in_order(done: Sequence[Done]) -> list[Done]:
    return sorted(done, key=lambda one: (one.stretch.partition, one.stretch.start))


def _rows(files: Sequence[NewFile]) -> int:
    return sum(one.rows for one in files)
