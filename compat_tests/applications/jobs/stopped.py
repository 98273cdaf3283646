"""`kafkawire-spark` that is killed, or waits, at a given point.

`python -m compat_tests.applications.jobs.stopped POINT NUMBER …` runs it.

POINT says where it is killed. `before` or `after`: the commit of that number, of any kind of table. `within`, with
NUMBER such as `1:500`: in the first commit, after so many calls of functions, or behind it, if there are fewer.
`outcome`: when so many tasks are done, and others may be in progress. `read` and `write`: when a task has read so many
batches of rows, or written so many row groups; its process may be a copy of this one.

`race`: before the commit it makes a file, whose name is the argument behind NUMBER, and waits for another one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_connectors.jobs import files, workers
from spark_connectors.jobs.__main__ import main
from spark_connectors.jobs.export import tasks
from spark_connectors.jobs.tables import delta, iceberg, parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

READY, GO = "ready", "go"
WAIT_S = 90.0


OWNER = os.getpid()  # of copies of it, too


def stop(is_it: bool) -> None:
    if is_it:
        os.kill(OWNER, signal.SIGKILL)
        signal.pause()  # a copied process is killed likewise, by its watcher


def around_commits(before: Callable[[int], None], after: Callable[[int], None]) -> None:
    numbers = count(1)
    kinds: tuple[Any, ...] = (delta.DeltaLakeTable, iceberg.IcebergTable, parquet.ParquetDirectory)
    for kind in kinds:
        original = kind.commit

        def commit(self: Any, *arguments: Any, original: Any = original) -> None:
            number = next(numbers)
            before(number)
            original(self, *arguments)
            after(number)

        kind.commit = commit


def around_outcomes(before: Callable[[int], None]) -> None:
    kinds: tuple[Any, ...] = (workers.OneByOne, workers.LocalWorkers)
    for kind in kinds:
        original = kind.map

        def mapped(self: Any, *arguments: Any, original: Any = original) -> Iterator[Any]:
            for number, outcome in enumerate(original(self, *arguments), 1):
                before(number)
                yield outcome

        kind.map = mapped


def after_calls(count: int) -> None:
    """Stop this thread after so many calls of functions."""
    left = count

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_call")
        stop(left <= 0)

    sys.setprofile(called)


def within_commit(number: int, calls: int) -> None:
    def before(one: int) -> None:
        if one == number:
            after_calls(calls)

    def after(one: int) -> None:
        sys.setprofile(None)
        stop(one == number)

    around_commits(before, after)


def at_batches(number: int) -> None:
    original = vars(tasks)["rows_in"]

    def rows_in(*arguments: Any) -> Iterator[Any]:
        for batch in original(*arguments):
            yield batch
            stop(next(batches) == number)

    batches = count(1)
    vars(tasks)["rows_in"] = rows_in


def at_row_groups(number: int) -> None:
    original = files.FileWriter._put
    row_groups = count(1)

    def put(self: Any, row_group: Any) -> None:
        original(self, row_group)
        stop(next(row_groups) == number)

    files.FileWriter._put = put  # type: ignore[method-assign]


def wait_at(directory: Path) -> Callable[[int], None]:
    def wait(number: int) -> None:
        if number == 1:
            (directory / f"{READY}-{os.getpid()}").touch()
            until_s = time.monotonic() + WAIT_S
            while not (directory / GO).exists() and time.monotonic() < until_s:
                time.sleep(0.001)

    return wait


def plan(point: str, number: str) -> None:
    nothing: Callable[[int], None] = lambda _: None  # noqa: E731
    if point == "race":
        around_commits(wait_at(Path(number)), nothing)
    elif point == "outcome":
        around_outcomes(lambda one: stop(one == int(number)))
    elif point == "within":
        within_commit(*map(int, number.split(":")))
    elif point in ("read", "write"):
        (at_batches if point == "read" else at_row_groups)(int(number))
    else:
        at: Callable[[int], None] = lambda one: stop(one == int(number))  # noqa: E731
        around_commits(*((at, nothing) if point == "before" else (nothing, at)))


if __name__ == "__main__":
    plan(*sys.argv[1:3])
    sys.exit(main(sys.argv[3:]))
