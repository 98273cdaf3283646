"""Files of a task, and the end of its stretch."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.export.rounds import Stretch
from spark_connectors.jobs.export.tasks import DeadPlace, Done, Task, write
from spark_connectors.jobs.export.tests.lake import TOPIC_ID, options
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, JsonForm, RawForm
from spark_connectors.jobs.tests.logs import log_batch, log_row
from spark_connectors.source.ranges import OffsetRange
from spark_connectors.wire import TopicPartition

RAW = RawForm()
JSON = JsonForm(declared(json.dumps([{"name": "id", "type": "int64"}]), taken=ORIGIN_COLUMNS))
ROWS = 400
SIZE = 500
FILE_BYTES = 60_000


def task(directory: Path, *, is_open: bool = False, file_bytes: int = FILE_BYTES) -> Task:
    stretch = Stretch((OffsetRange(TopicPartition("orders", 1), TOPIC_ID, 0, ROWS),), is_open)
    return Task(options(), stretch, RAW, str(directory), file_bytes)


def batches(rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Values that do not compress."""
    for begin in range(0, rows, 10):
        offsets = range(begin, begin + 10)
        yield log_batch([log_row(at, value=random.Random(at).randbytes(SIZE)) for at in offsets])


def offsets(directory: Path, done: Done) -> list[int]:
    read = [pq.ParquetFile(directory / one.path).read() for one in done.files]
    return [offset for table in read for offset in table.column("offset").to_pylist()]


def test_all_rows_of_a_stretch_are_in_files_in_their_order(tmp_path: Path) -> None:
    done = write(task(tmp_path), batches())
    assert offsets(tmp_path, done) == list(range(ROWS))
    assert done.end == ROWS


def test_task_starts_a_new_file_at_the_target_size_unless_little_is_left(tmp_path: Path) -> None:
    whole = write(task(tmp_path, file_bytes=1 << 30), batches())
    (file,) = whole.files
    for parts in (1, 2, 3):
        sizes = [one.size_bytes for one in write(task(tmp_path, file_bytes=file.size_bytes // parts), batches()).files]
        assert parts - 1 <= len(sizes) <= parts
        assert min(sizes) > 0.4 * file.size_bytes / parts


def test_a_stretch_that_is_open_ends_where_a_file_is_full(tmp_path: Path) -> None:
    done = write(task(tmp_path, is_open=True), batches())
    assert len(done.files) == 1
    assert 0 < done.end < ROWS
    assert offsets(tmp_path, done) == list(range(done.end))


def test_open_stretch_without_a_full_file_ends_after_its_rows(tmp_path: Path) -> None:
    done = write(task(tmp_path, is_open=True, file_bytes=1 << 30), batches(100))
    assert (len(done.files), done.end) == (1, ROWS)


def test_a_stretch_without_rows_is_done(tmp_path: Path) -> None:
    assert write(task(tmp_path), ()) == Done(task(tmp_path).stretch, ROWS, ())


def test_letters_that_are_in_their_table_are_not_written_again(tmp_path: Path) -> None:
    dead = DeadPlace(str(tmp_path / "dead"), 25)
    wanted = Task(options(), task(tmp_path).stretch, JSON, str(tmp_path / "rows"), FILE_BYTES, dead)
    done = write(wanted, batches(40))
    assert done.files == ()
    letters = [pq.ParquetFile(tmp_path / "dead" / one.path).read() for one in done.dead]
    assert pa.concat_tables(letters).column("offset").to_pylist() == list(range(25, 40))


def test_failed_task_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(200)
        assert list(tmp_path.iterdir())
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError):
        write(task(tmp_path, file_bytes=10_000), failing())
    assert not list(tmp_path.iterdir())


def test_repeated_task_writes_files_with_new_names(tmp_path: Path) -> None:
    once, again = write(task(tmp_path), batches()), write(task(tmp_path), batches())
    names = [one.path for one in (*once.files, *again.files)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("part-1-0-") for name in names)


def test_tasks_travel() -> None:
    wanted = task(Path("/lake"))
    assert pickle.loads(pickle.dumps(wanted)).stretch == wanted.stretch
