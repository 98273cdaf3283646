"""Each offset is in the table once, after crashes and lost answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.jobs.tables.errors import CommitUnknown
from testkit.lakes import JOB, KINDS, Lake, export, lake_of

STEPS_MAX = 60


class Killed(BaseException):
    """End of a process. No code catches it."""


def doors(kind: str) -> list[tuple[Any, str]]:
    """All functions by which a commit has an effect outside."""
    if kind == "delta":
        from deltalake import DeltaTable

        return [(DeltaTable, "create_write_transaction"), (DeltaTable, "__init__")]
    if kind == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.io.pyarrow import PyArrowFileIO

        return [(SqlCatalog, "commit_table"), (SqlCatalog, "load_table"), (PyArrowFileIO, "new_output")]
    return [(os, "link"), (os, "fsync"), (Path, "rename"), (Path, "unlink"), (Path, "mkdir")]


@contextmanager
def failing(kind: str, step: int, error: BaseException, *, is_done: bool) -> Iterator[Callable[[], bool]]:
    """Let the `step`-th call fail, before or after its effect. Yields a function: whether there was such a call."""
    left = step

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left:
                return original(*arguments, **named)
            if is_done:
                original(*arguments, **named)
            raise error

        return call

    with pytest.MonkeyPatch.context() as patches:
        for owner, name in doors(kind):
            patches.setattr(owner, name, wrapped(getattr(owner, name)))
        yield lambda: left <= 0


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [Killed(), OSError("no answer")], ids=["killed", "unanswered"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_may_be_the_last(kind: str, error: BaseException, is_done: bool, tmp_path: Path) -> None:
    for step in range(1, STEPS_MAX):
        lake = lake_of(kind, tmp_path / str(step))
        lake.directory.mkdir()
        lake.made()
        export(lake.table(), range(3))
        with failing(kind, step, error, is_done=is_done) as was_hit:
            is_told = attempt(lake)
        go_on(lake, is_told)
        assert lake.offsets() == list(range(7)), f"step {step}"
        assert len(lake.table().files()) == 3
        if not was_hit():
            break
    assert 2 < step < STEPS_MAX - 1


def attempt(lake: Lake) -> bool:
    """Try to export three more offsets. Returns whether the commit was acknowledged."""
    try:
        export(lake.table(), range(3, 6))
    except (Killed, CommitUnknown, OSError):
        return False
    return True


def go_on(lake: Lake, is_told: bool) -> None:
    """Continue from the progress in the table, as the next run does."""
    commits = lake.table().progress(JOB).commits
    assert commits == 2 or not is_told
    for start, stop in [(3, 6), (6, 7)][commits - 1 :]:
        export(lake.table(), range(start, stop))
