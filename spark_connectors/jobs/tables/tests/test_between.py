"""Events between the read of a snapshot and the commit on top of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.jobs.tables.appending import ATTEMPTS
from spark_connectors.jobs.tables.errors import CommitUnknown, SchemaRefused, Superseded
from testkit.lakes import JOB, KINDS, OTHERS, Lake, export, lake_of, next_one, stored_iceberg, written

LAKES = [kind for kind in KINDS if kind != "parquet"]


def door(kind: str) -> tuple[Any, str]:
    """The function by which a store takes a commit."""
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable, "create_write_transaction"
    if kind == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog, "commit_table"
    return os, "link"


def refusal(kind: str) -> Any:
    """A refusal of the store or of its client."""
    if kind == "delta":
        from deltalake.exceptions import CommitFailedError

        return CommitFailedError("Concurrent transaction failed")
    if kind == "iceberg":
        from pyiceberg.exceptions import CommitFailedException

        return CommitFailedException("branch main has changed")
    return FileExistsError("there is one")


@contextmanager
def before_a_commit(kind: str, happening: Callable[[], object], times: int = 1) -> Iterator[None]:
    left = times
    owner, name = door(kind)
    original = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            with pytest.MonkeyPatch.context() as patches:
                patches.setattr(owner, name, original)
                happening()
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(owner, name, call)
        yield


@contextmanager
def answering(kind: str, answer: Exception) -> Iterator[None]:
    """Take commits, but answer with this error."""
    owner, name = door(kind)
    original = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        original(*arguments, **named)
        raise answer

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(owner, name, call)
        yield


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    lake = lake_of(request.param, tmp_path)
    export(lake.made(), range(3))
    return lake


@pytest.fixture(params=LAKES)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table of a format that allows several writers."""
    lake = lake_of(request.param, tmp_path)
    export(lake.made(), range(3))
    return lake


def test_another_run_of_the_job_wins(lake: Lake) -> None:
    with (
        before_a_commit(lake.kind, lambda: export(lake.table(), range(3, 6))),
        pytest.raises(Superseded, match="its commit 2 meanwhile, and this one was to follow commit 1"),
    ):
        export(lake.table(), range(3, 6))
    assert lake.offsets() == list(range(6))


def test_another_run_without_rows_wins_too(lake: Lake) -> None:
    """The other run has not moved any offset of this one."""

    def rival() -> None:
        table = lake.table()
        before = table.progress(JOB)
        table.commit(JOB, [], before, before.advanced([]))

    with before_a_commit(lake.kind, rival), pytest.raises(Superseded):
        export(lake.table(), range(3, 6))
    assert lake.offsets() == [0, 1, 2]


def test_another_run_that_has_more_than_one_commit_wins(lake: Lake) -> None:
    def rival() -> None:
        export(lake.table(), range(3, 6))
        export(lake.table(), range(6, 9))

    with before_a_commit(lake.kind, rival), pytest.raises(Superseded):
        export(lake.table(), range(3, 6))
    assert lake.offsets() == list(range(9))


def test_a_stranger_does_no_harm(lake: Lake) -> None:
    with before_a_commit(lake.kind, lake.append_as_stranger):
        export(lake.table(), range(3, 6))
    assert lake.offsets() == [OTHERS, *range(6)]


def test_another_job_does_no_harm(lake: Lake) -> None:
    def other() -> None:
        table = lake.table()
        before = table.progress("other")
        table.commit("other", [written(table, [9])], before, next_one(before, range(1)))

    with before_a_commit(lake.kind, other):
        export(lake.table(), range(3, 6))
    assert lake.offsets() == [*range(6), 9]


def test_commit_that_the_store_applied_but_refused_counts_once(lake: Lake) -> None:
    """A client without an answer repeats the commit, and the repetition is refused because of the first one."""
    with answering(lake.kind, refusal(lake.kind)):
        export(lake.table(), range(3, 6))
    assert lake.offsets() == list(range(6))
    export(lake.table(), range(6, 8))
    assert lake.offsets() == list(range(8))


def test_commit_without_rows_that_the_store_applied_but_refused_moves_the_job(shared: Lake) -> None:
    table = shared.table()
    before = table.progress(JOB)
    with answering(shared.kind, refusal(shared.kind)):
        table.commit(JOB, [], before, next_one(before, range(9)))
    assert shared.table().progress(JOB) == next_one(before, range(9))


def test_commit_gives_up_after_foreign_commits_before_every_attempt(tmp_path: Path) -> None:
    lake = lake_of("iceberg", tmp_path)
    lake.made()
    with (
        before_a_commit(lake.kind, lake.append_as_stranger, times=ATTEMPTS),
        pytest.raises(CommitUnknown, match="others have committed meanwhile, 10 times"),
    ):
        export(lake.table(), range(3))
    assert lake.offsets() == [OTHERS] * ATTEMPTS


def add_column(lake: Lake, *, is_required: bool = False) -> None:
    if lake.kind == "delta":
        from deltalake import DeltaTable, Field
        from deltalake.schema import PrimitiveType

        DeltaTable(lake.place).alter.add_columns(Field("more", PrimitiveType("string"), nullable=not is_required))
        return
    from pyiceberg.types import StringType

    with stored_iceberg(lake).update_schema(allow_incompatible_changes=True) as update:
        update.add_column("more", StringType(), required=is_required)


def test_a_column_that_may_be_null_is_added_meanwhile(shared: Lake) -> None:
    with before_a_commit(shared.kind, lambda: add_column(shared)):
        export(shared.table(), range(3, 6))
    assert shared.rows().column("more").to_pylist() == [None] * 6


def drop_column(lake: Lake) -> None:
    with stored_iceberg(lake).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("value")


def test_a_column_is_taken_away_meanwhile(tmp_path: Path) -> None:
    """A catalog does not compare schemas, so files may have more columns than the table."""
    lake = lake_of("iceberg", tmp_path)
    lake.made()
    file = written(lake.table(), range(3))
    drop_column(lake)
    before = lake.table().progress(JOB)
    with pytest.raises(SchemaRefused, match="the table has no column value"):
        lake.table().commit(JOB, [file], before, next_one(before, range(3)))
    assert lake.offsets() == []
