"""A directory while files of a commit are moved, and directories that are no tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_connectors.jobs.tables.api import Progress
from spark_connectors.jobs.tables.errors import CommitUnknown, FileRefused, SchemaRefused, TableRefused
from spark_connectors.jobs.tables.parquet import ParquetDirectory
from spark_connectors.jobs.tables.puts import put_new
from testkit.lakes import JOB, SCHEMA, Lake, export, lake_of, next_one, rows_of, written


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = lake_of("parquet", tmp_path)
    export(lake.made(), range(3))
    return lake


def commit_three_files(lake: Lake) -> None:
    table = lake.table()
    before = table.progress(JOB)
    files = [written(table, [offset]) for offset in (3, 4, 5)]
    table.commit(JOB, files, before, next_one(before, range(6)))


def test_no_reader_sees_a_row_twice_or_misses_one_of_before(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def looking(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            seen.append(lake.offsets())
            result = original(*arguments, **named)
            seen.append(lake.offsets())
            return result

        return call

    for owner, name in ((os, "link"), (os, "fsync"), (Path, "rename"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, looking(getattr(owner, name)))
    commit_three_files(lake)
    assert {tuple(one) for one in seen} == {tuple(range(3)), *(_with(seen, count) for count in (4, 5)), tuple(range(6))}
    assert all(len(set(one)) == len(one) and set(range(3)) <= set(one) for one in seen)


def _with(seen: list[list[int]], count: int) -> tuple[int, ...]:
    return next(tuple(one) for one in seen if len(one) == count)


def test_read_of_the_progress_moves_files_of_a_failed_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = 0

    def fail_at_the_second(path: Path, target: Path) -> Path:
        nonlocal moves
        moves += path.exists()
        if moves == 2:
            raise OSError("no space")
        os.rename(path, target)
        return target

    with monkeypatch.context() as patches:
        patches.setattr(Path, "rename", fail_at_the_second)
        with pytest.raises(CommitUnknown, match="no space"):
            commit_three_files(lake)
    assert len(lake.offsets()) == 4
    assert lake.table().progress(JOB).commits == 2
    assert lake.offsets() == list(range(6))


def test_a_sweep_moves_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, target: Path) -> Path:
        raise OSError(f"{path} stays") if path.exists() else FileNotFoundError(target)

    with monkeypatch.context() as patches:
        patches.setattr(Path, "rename", fail)
        with pytest.raises(CommitUnknown, match="stays"):
            commit_three_files(lake)
    assert lake.table().sweep(0) == 0
    assert lake.offsets() == list(range(6))


def test_a_name_that_is_taken(lake: Lake) -> None:
    table = lake.table()
    file = written(table, [3])
    Path(lake.place, file.path).write_bytes(b"of somebody else")
    with pytest.raises(FileRefused, match="there is another"):
        table.commit(JOB, [file], table.progress(JOB), next_one(table.progress(JOB), range(4)))


def test_a_commit_that_cannot_be_read_is_not_passed_over(lake: Lake) -> None:
    (path,) = Path(lake.place).rglob("*.json")
    path.write_text('{"commits": 1, "files": []}')
    with pytest.raises(ValueError, match="no progress of a job"):
        lake.table().progress(JOB)


# --- locations, and existing files


def test_object_stores_are_refused_without_telling_their_secrets() -> None:
    with pytest.raises(TableRefused, match="Take a table of delta or iceberg for it") as caught:
        ParquetDirectory("s3://key:secret@bucket/table?region=eu")
    assert "secret" not in str(caught.value)


def test_directory_with_foreign_files_is_a_table_with_their_schema(tmp_path: Path) -> None:
    pq.write_table(rows_of([1]), tmp_path / "theirs.parquet")
    table = ParquetDirectory(str(tmp_path))
    assert table.schema() == SCHEMA
    table.create(SCHEMA)
    table.commit(JOB, [written(table, [2])], Progress(), next_one(Progress(), range(3)))
    assert pq.read_table(tmp_path).column("offset").to_pylist() in ([1, 2], [2, 1])
    wrong = written(table, [3], SCHEMA.append(pa.field("more", pa.int8())))
    with pytest.raises(SchemaRefused):
        table.commit(JOB, [wrong], table.progress(JOB), next_one(table.progress(JOB), range(4)))


def test_a_directory_with_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(rows_of([1]), tmp_path / "day=1" / "theirs.parquet")
    with pytest.raises(TableRefused, match="it has folders, such as day=1"):
        ParquetDirectory(str(tmp_path)).create(SCHEMA)


def test_a_name_is_given_once(tmp_path: Path) -> None:
    assert put_new(tmp_path / "a", b"1", tmp_path)
    assert not put_new(tmp_path / "a", b"2", tmp_path)
    assert put_new(tmp_path / "a", b"1", tmp_path)  # a repetition after a lost answer
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"1"
