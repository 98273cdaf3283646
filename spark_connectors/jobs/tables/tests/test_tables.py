"""Behaviour of every table, whatever its format: a commit is complete or absent, and is taken once, despite crashes and
races.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from spark_connectors.jobs.tables.api import Position, Progress
from spark_connectors.jobs.tables.errors import CommitUnknown, FileRefused, SchemaRefused, Superseded
from spark_connectors.locations import opened
from testkit.lakes import JOB, KINDS, OTHERS, SCHEMA, TOPIC_ID, Lake, export, lake_of, next_one, rows_of, written

DAY_S = 86_400.0
RACERS = 3
ROUNDS = 4


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return lake_of(request.param, tmp_path)


# --- content


def test_a_table_that_is_not_there(lake: Lake) -> None:
    table = lake.table()
    assert table.schema() is None
    assert table.progress(JOB) == Progress()
    assert table.files() == ()
    assert table.sweep(0) == 0


def test_a_table_that_was_made_is_empty_and_has_the_schema(lake: Lake) -> None:
    lake.made()
    table = lake.made()  # a second creation has no effect
    schema = table.schema()
    assert schema is not None
    assert schema.names == SCHEMA.names
    assert table.progress(JOB) == Progress()
    assert table.files() == ()


def test_files_count_once_they_are_committed(lake: Lake) -> None:
    table = lake.made()
    file = written(table, range(3))
    assert table.files() == ()
    after = next_one(Progress(), range(3))
    table.commit(JOB, [file], Progress(), after)
    assert lake.rows().select(SCHEMA.names).sort_by("offset").cast(SCHEMA) == rows_of(range(3))
    (path,) = lake.table().files()
    assert path.endswith(file.path)
    assert lake.table().progress(JOB) == after


def test_commits_follow_each_other(lake: Lake) -> None:
    lake.made()
    for number in range(4):
        export(lake.table(), range(number * 5, number * 5 + 5))
    assert lake.offsets() == list(range(20))
    progress = lake.table().progress(JOB)
    assert progress.commits == 4
    assert progress.positions == (Position(TOPIC_ID, 0, 20),)


def test_several_files_topics_and_partitions(lake: Lake) -> None:
    """A commit without one partition, and a topic that was created again."""
    table = lake.made()
    first = Progress().advanced([Position(TOPIC_ID, 0, 2), Position(TOPIC_ID, 7, 3)])
    table.commit(JOB, [written(table, range(2)), written(table, range(10, 13))], Progress(), first)
    second = first.advanced([Position(bytes(16), 1, 1), Position(TOPIC_ID, 7, 3)])
    table.commit(JOB, [written(table, [20])], first, second)
    assert lake.table().progress(JOB) == second
    assert second.positions == (Position(bytes(16), 1, 1), Position(TOPIC_ID, 0, 2), Position(TOPIC_ID, 7, 3))
    assert lake.offsets() == [0, 1, 10, 11, 12, 20]


def test_a_commit_without_files_moves_the_job(lake: Lake) -> None:
    """A topic with control records only is an example."""
    table = lake.made()
    after = next_one(Progress(), range(9))
    table.commit(JOB, [], Progress(), after)
    assert lake.table().progress(JOB) == after
    with pytest.raises(Superseded):
        table.commit(JOB, [], Progress(), next_one(Progress(), range(8)))


def test_jobs_do_not_know_each_other(lake: Lake) -> None:
    table = lake.made()
    export(table, range(3))
    assert table.progress("other") == Progress()
    table.commit("other", [written(table, [9])], Progress(), next_one(Progress(), range(1)))
    assert table.progress(JOB).commits == 1
    assert lake.offsets() == [0, 1, 2, 9]


@pytest.mark.parametrize("job", ["", "a/b", "..", "a b", "x" * 101])
def test_names_that_are_none(lake: Lake, job: str) -> None:
    table = lake.made()
    with pytest.raises(ValueError, match="a job is named with"):
        table.progress(job)
    with pytest.raises(ValueError, match="a job is named with"):
        table.commit(job, [], Progress(), Progress().advanced([]))


def test_a_commit_is_one_step(lake: Lake) -> None:
    table = lake.made()
    for after in (Progress(), Progress({}, 2)):
        with pytest.raises(ValueError, match="one commit further"):
            table.commit(JOB, [], Progress(), after)


# --- other writers


def test_the_same_step_again_is_refused(lake: Lake) -> None:
    table = lake.made()
    export(table, range(3))
    again = lake.table()
    with pytest.raises(Superseded, match="another run of it"):
        again.commit(JOB, [written(again, range(3))], Progress(), next_one(Progress(), range(3)))
    assert lake.offsets() == [0, 1, 2]


def test_strangers_may_append_meanwhile(lake: Lake) -> None:
    table = lake.made()
    lake.append_as_stranger()
    before = table.progress(JOB)
    file = written(table, range(3))
    lake.append_as_stranger()
    table.commit(JOB, [file], before, next_one(before, range(3)))
    lake.append_as_stranger()
    export(table, range(3, 5))
    assert lake.offsets() == [OTHERS] * 3 + list(range(5))


def test_racing_threads_make_each_commit_once(lake: Lake) -> None:
    lake.made()
    with ThreadPoolExecutor(RACERS + 1) as threads:
        for number in range(ROUNDS):
            start = threading.Barrier(RACERS + 1)
            stranger = threads.submit(_append_at, lake, start)
            racers = [threads.submit(_race, lake, start, number) for _ in range(RACERS)]
            assert [racer.result() for racer in racers].count("won") == 1
            stranger.result()
    assert lake.table().progress(JOB).commits == ROUNDS
    assert [one for one in lake.offsets() if one != OTHERS] == list(range(ROUNDS * 2))
    assert lake.offsets().count(OTHERS) == ROUNDS


def _append_at(lake: Lake, start: threading.Barrier) -> None:
    start.wait()
    lake.append_as_stranger()


def _race(lake: Lake, start: threading.Barrier, number: int) -> str:
    """Try to make this commit. If the store is too busy, the outcome may be unknown."""
    table = lake.table()
    before = table.progress(JOB)
    assert before.commits == number
    offsets = range(number * 2, number * 2 + 2)
    file = written(table, offsets)
    start.wait()
    try:
        table.commit(JOB, [file], before, next_one(before, offsets))
    except Superseded:
        return "lost"
    except CommitUnknown:
        return "unknown"
    return "won"


def test_racing_processes_make_a_commit_once(lake: Lake) -> None:
    lake.made()
    context = multiprocessing.get_context("spawn")
    start, outcomes = context.Barrier(2), context.Queue()
    racers = [context.Process(target=_race_as_process, args=(lake, start, outcomes)) for _ in range(2)]
    for racer in racers:
        racer.start()
    assert sorted(outcomes.get(timeout=60) for _ in racers) == ["lost", "won"]
    for racer in racers:
        racer.join()
    outcomes.close()
    assert lake.offsets() == [0, 1]


def _race_as_process(lake: Lake, start: threading.Barrier, outcomes: multiprocessing.Queue[str]) -> None:
    outcomes.put(_race(lake, start, 0))


# --- files and rows that do not fit


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (SCHEMA.append(pa.field("more", pa.int32())), "the table has no column more"),
        (SCHEMA.remove(0), "column offset is missing"),
        (SCHEMA.set(0, pa.field("offset", pa.int32(), nullable=False)), "column offset is int32, and has to be int64"),
        (SCHEMA.set(0, pa.field("offset", pa.int64())), "column offset may be null"),
    ],
)
def test_rows_that_do_not_fit_are_refused(lake: Lake, schema: pa.Schema, reason: str) -> None:
    table = lake.made()
    file = written(table, range(3), schema)
    with pytest.raises(SchemaRefused, match=reason):
        table.commit(JOB, [file], Progress(), next_one(Progress(), range(3)))
    assert lake.table().progress(JOB) == Progress()
    assert table.files() == ()


def test_columns_that_may_be_null_may_be_left_out(lake: Lake) -> None:
    table = lake.made()
    file = written(table, range(3), SCHEMA.remove(SCHEMA.get_field_index("headers")))
    table.commit(JOB, [file], Progress(), next_one(Progress(), range(3)))
    assert lake.offsets() == [0, 1, 2]


def test_a_file_that_is_gone_is_not_committed(lake: Lake) -> None:
    table = lake.made()
    file = written(table, range(3))
    system, path = opened(table.data_location())
    system.delete_file(f"{path}/{file.path}")
    with pytest.raises(FileRefused, match="is not there"):
        table.commit(JOB, [file], Progress(), next_one(Progress(), range(3)))
    assert table.progress(JOB) == Progress()


# --- files without a commit


def test_sweep_deletes_uncommitted_files_once_they_are_old(lake: Lake) -> None:
    table = lake.made()
    export(table, range(3))
    left = [written(table, [number]) for number in (7, 8, 9)]
    aged = [left[0], left[1]]
    _, path = opened(table.data_location())
    long_ago_s = time.time() - 30 * DAY_S
    for file in aged:
        os.utime(f"{path}/{file.path}", (long_ago_s, long_ago_s))
    for committed in table.files():
        os.utime(committed.removeprefix("file://"), (long_ago_s, long_ago_s))
    assert table.sweep(40 * DAY_S) == 0
    assert table.sweep(DAY_S) == 2
    assert table.sweep(DAY_S) == 0
    assert Path(path, left[2].path).exists()
    assert lake.offsets() == [0, 1, 2]
