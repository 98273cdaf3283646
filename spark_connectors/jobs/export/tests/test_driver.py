"""Each row and each dead letter is in its table once, despite crashes, races and lost answers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.jobs.declared import declared
from spark_connectors.jobs.export.driver import ATTEMPTS
from spark_connectors.jobs.export.tests.lake import (
    FILE_BYTES,
    JOB,
    TOPIC_ID,
    Killed,
    Lake,
    Steps,
    Values,
    places_of,
)
from spark_connectors.jobs.table_rows import ORIGIN_COLUMNS, JsonForm, Tombstones
from spark_connectors.jobs.tables.api import Place, Progress
from spark_connectors.jobs.tables.errors import CommitUnknown, SchemaRefused, Superseded, TableRefused

STEPS_MAX = 100
COLUMNS = declared(json.dumps([{"name": "id", "type": "int64"}]), taken=ORIGIN_COLUMNS)


def noise(count: int, seed: int = 0) -> list[bytes]:
    """Values of 200 bytes that do not compress."""
    choice = random.Random(seed)
    return [choice.randbytes(200) for _ in range(count)]


def mixed(count: int) -> list[bytes | None]:
    """Values in JSON. Every third one is a dead letter, and some of these are null."""
    choice = random.Random(count)
    pad = [choice.randbytes(600).hex() for _ in range(count)]
    return [
        (None if number % 2 else b"x" + text.encode()) if number % 3 == 0 else b'{"id": %d}' % number
        for number, text in enumerate(pad)
    ]


def all_places(values: Values) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, each in values.items() for offset in range(len(each))]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, {0: noise(1000), 1: noise(90, 1), 2: []})


@pytest.fixture
def json_lake(tmp_path: Path) -> Lake:
    return json_lake_in(tmp_path)


def json_lake_in(directory: Path) -> Lake:
    """A log for several rounds, with dead letters in each."""
    return Lake(directory, {0: mixed(200), 1: mixed(60)}, JsonForm(COLUMNS), has_dead=True, file_bytes=12_000)


def test_all_rows_are_there_once(lake: Lake) -> None:
    found = lake.export().totals
    assert places_of(lake.table.rows()) == all_places(lake.values)
    assert (found.rows, found.offsets) == (1090, 1090)
    assert found.files == len(lake.table.taken)
    assert found.file_bytes == sum(one.size_bytes for one in lake.table.taken)
    assert lake.table.progress(JOB).offsets == {Place(TOPIC_ID, 0): 1000, Place(TOPIC_ID, 1): 90, Place(TOPIC_ID, 2): 0}


def test_files_have_the_size_that_was_asked_for(lake: Lake) -> None:
    lake.export()
    last = {one.path.split("-")[1]: one for one in sorted(lake.table.taken, key=_start)}
    for one in lake.table.taken:
        if one not in last.values():
            assert 0.7 * FILE_BYTES < one.size_bytes < 1.7 * FILE_BYTES
    assert len(lake.table.taken) > 5


def _start(one: Any) -> int:
    return int(one.path.split("-")[2])


def test_nothing_new_is_nothing_to_commit(lake: Lake) -> None:
    lake.export()
    before = lake.table.progress(JOB)
    found = lake.export().totals
    assert (found.commits, found.rows) == (0, 0)
    assert lake.table.progress(JOB) == before


def test_next_export_appends_the_new_rows(lake: Lake) -> None:
    lake.ends = {0: 130, 1: 0}
    lake.export()
    assert len(lake.table.rows()) == 130
    lake.ends = {}
    lake.export()
    assert places_of(lake.table.rows()) == all_places(lake.values)


def test_a_topic_without_rows_is_remembered(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {0: [], 1: []})
    lake.export()
    assert lake.table.progress(JOB).offsets == {Place(TOPIC_ID, 0): 0, Place(TOPIC_ID, 1): 0}
    assert lake.export().totals.commits == 0


def test_a_row_is_in_the_table_or_a_dead_letter(json_lake: Lake) -> None:
    found = json_lake.export().totals
    rows, dead = places_of(json_lake.table.rows(), "_"), places_of(json_lake.dead.rows())
    assert sorted(rows + dead) == all_places(json_lake.values)
    assert (found.rows, found.dead_letters, found.skipped) == (len(rows), len(dead), 0)
    assert {row["reason"] for row in json_lake.dead.rows()} == {"null value", "no JSON object"}


def test_tombstones_may_be_skipped(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {0: mixed(60)}, JsonForm(COLUMNS, Tombstones.SKIP), has_dead=True)
    found = lake.export().totals
    assert (found.rows, found.dead_letters, found.skipped) == (40, 10, 10)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("ends", [{}, {0: 90, 1: 0}], ids=["as before", "more than before"])
def test_every_step_may_be_the_last(tmp_path: Path, is_done: bool, ends: dict[int, int]) -> None:
    """The next run may find the same rows, and plan the same rounds, or find more."""
    for step in range(1, STEPS_MAX):
        lake = json_lake_in(tmp_path / str(step))
        lake.ends = ends
        lake.fail_at(Steps(step, is_done))
        was_killed = True
        try:
            lake.export()
            was_killed = False
        except Killed:
            pass
        lake.fail_at(Steps())
        lake.ends = {}
        lake.export()
        places = places_of(lake.table.rows(), "_") + places_of(lake.dead.rows())
        assert sorted(places) == all_places(lake.values), f"step {step}"
        if not was_killed:
            break
    assert 8 < step < STEPS_MAX - 1


@pytest.mark.parametrize("which", ["table", "dead"])
@pytest.mark.parametrize("fate", ["unanswered", "refused"])
@pytest.mark.parametrize("times", [1, 2, ATTEMPTS - 1])
def test_a_commit_without_an_answer_is_made_once(json_lake: Lake, which: str, fate: str, times: int) -> None:
    table = getattr(json_lake, which)
    setattr(table, fate, times)
    found = json_lake.export().totals
    places = places_of(json_lake.table.rows(), "_") + places_of(json_lake.dead.rows())
    assert sorted(places) == all_places(json_lake.values)
    assert found.rows + found.dead_letters == len(places)
    assert json_lake.clock.moment_s > 0 or fate == "unanswered"


def test_commit_without_an_answer_in_all_attempts_ends_the_run(lake: Lake) -> None:
    lake.table.refused = ATTEMPTS
    with pytest.raises(CommitUnknown):
        lake.export()
    lake.export()
    assert places_of(lake.table.rows()) == all_places(lake.values)


@pytest.mark.parametrize("which", ["table", "dead"])
def test_run_superseded_by_another_run_raises_and_each_row_is_written_once(json_lake: Lake, which: str) -> None:
    getattr(json_lake, which).before_commits = [lambda: None, rival_of(json_lake).export]
    with pytest.raises(Superseded, match="another run of it"):
        json_lake.export()
    places = places_of(json_lake.table.rows(), "_") + places_of(json_lake.dead.rows())
    assert sorted(places) == all_places(json_lake.values)


def rival_of(lake: Lake, ends: dict[int, int] | None = None) -> Lake:
    """Another run with the same tables."""
    rival = Lake(lake.directory, lake.values, lake.form, lake.has_dead, lake.file_bytes, ends or {})
    rival.table, rival.dead = lake.table, lake.dead
    return rival


@pytest.mark.parametrize("which", ["table", "dead"])
def test_a_rival_commits_where_an_answer_was_lost(json_lake: Lake, which: str) -> None:
    """The job continues from the progress of the rival."""
    table = getattr(json_lake, which)
    rival = rival_of(json_lake, ends={0: 100, 1: 30})

    def lose() -> None:
        rival.export()
        table.refused = 1

    table.before_commits = [lose]
    found = json_lake.export().totals
    places = places_of(json_lake.table.rows(), "_") + places_of(json_lake.dead.rows())
    assert sorted(places) == all_places(json_lake.values)
    assert 0 < found.rows < len(json_lake.table.rows())


def test_another_topic_of_the_same_name_is_refused(lake: Lake) -> None:
    lake.export()
    with pytest.raises(TableRefused, match="deleted and created again"):
        lake.export(topic_id=bytes(16))


def test_a_table_with_other_columns_is_refused(tmp_path: Path, lake: Lake) -> None:
    lake.export()
    other = Lake(tmp_path, {0: mixed(9)}, JsonForm(COLUMNS), has_dead=True)
    other.table = lake.table
    with pytest.raises(SchemaRefused, match="the table has no column id"):
        other.export()


def test_failed_task_ends_the_run_and_no_file_is_committed(lake: Lake) -> None:
    def fail(task: Any) -> Any:
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError):
        lake.export(task=fail)
    assert lake.table.progress(JOB) == Progress()
    assert not lake.table.taken


class Shuffled:
    """Workers with results in random order."""

    count = 3

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed)

    def map(self, task: Callable[[Any], Any], arguments: Iterable[Any]) -> Iterator[Any]:
        found = [task(one) for one in arguments]
        self._choice.shuffle(found)
        return iter(found)

    def close(self) -> None: ...


@pytest.mark.parametrize("seed", range(5))
def test_outcomes_may_come_in_any_order(json_lake: Lake, seed: int) -> None:
    json_lake.export(Shuffled(seed))
    places = places_of(json_lake.table.rows(), "_") + places_of(json_lake.dead.rows())
    assert sorted(places) == all_places(json_lake.values)
