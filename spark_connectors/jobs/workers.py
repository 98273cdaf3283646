"""Who does the tasks of a job: processes of this machine, or executors of Spark's.

A task is a function and what it is called with, and both are pickled. Its outcome is small: rows stay where the task
has written them. Tasks may be done twice, as Spark may do one again whose executor is lost.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

_AHEAD: Final = 2  # tasks for each worker that have been taken from the job


class Workers(Protocol):
    @property
    def count(self) -> int:
        """How many tasks are done at once."""

    def map(self, task: Callable[[Asked], Answer], wanted: Iterable[Asked]) -> Iterator[Answer]:
        """The outcomes, as they come; of `wanted` no more is taken than will be begun soon. Raises what the first task
        raises that fails, when those have ended that were begun."""

    def close(self) -> None:
        """They are of no more use."""


class OneByOne:
    """In this process: nothing is pickled, and the order is that of `wanted`."""

    count = 1

    def map(self, task: Callable[[Asked], Answer], wanted: Iterable[Asked]) -> Iterator[Answer]:
        """See Workers."""
        return map(task, wanted)

    def close(self) -> None:
        """See Workers."""


class LocalWorkers:
    """Processes of this machine. They stay for the next tasks, unless one has failed, and end when whoever has begun
    them ends, however that comes.

    The first ones are copies of this process as it is here, so nothing has to be imported again; later ones, and all of
    a process with threads, are new: a copy has the locks that they hold, and not them. Libraries that have threads once
    they are imported, as numpy and pyarrow, know of copies; what has begun to work may not, so this comes before it.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._executor = _copies(count) if sys.platform == "linux" and threading.active_count() == 1 else None

    def map(self, task: Callable[[Asked], Answer], wanted: Iterable[Asked]) -> Iterator[Answer]:
        """See Workers."""
        executor, self._executor = self._executor, None
        if executor is None:
            executor = _pool(self.count, "spawn")
        yield from _mapped(executor, self.count * _AHEAD, task, wanted)
        self._executor = executor

    def close(self) -> None:
        """See Workers. A pool that nobody has shut down sometimes complains when the interpreter ends."""
        if self._executor is not None:
            self._executor.shutdown()


class SparkWorkers:
    """Executors of a session. Each task is a job of its own: so an outcome is there when its task is done."""

    def __init__(self, session: Any) -> None:
        self._context = session.sparkContext
        self.count = int(self._context.defaultParallelism)

    def map(self, task: Callable[[Asked], Answer], wanted: Iterable[Asked]) -> Iterator[Answer]:
        """See Workers."""

        def in_spark(one: Asked) -> Answer:
            (found,) = self._context.parallelize([one], 1).map(task).collect()
            answer: Answer = found
            return answer

        executor = ThreadPoolExecutor(self.count)
        yield from _mapped(executor, self.count * _AHEAD, in_spark, wanted)
        executor.shutdown()

    def close(self) -> None:
        """See Workers. The session is whose it was."""


def outcomes(
    workers: Workers, task: Callable[[Asked], Answer], wanted: Sequence[Asked]
) -> Iterator[tuple[Asked, Answer]]:
    """As `Workers.map`, each with what was wanted, which does not travel back."""
    for place, answer in workers.map(partial(_numbered, task), list(enumerate(wanted))):
        yield wanted[place], answer


def _numbered(task: Callable[[Asked], Answer], numbered: tuple[int, Asked]) -> tuple[int, Answer]:
    place, one = numbered
    return place, task(one)


def _mapped(
    executor: Executor, at_once: int, task: Callable[[Asked], Answer], wanted: Iterable[Asked]
) -> Iterator[Answer]:
    """The executor is of use afterwards if all was done."""
    waiting = iter(wanted)
    running: set[Future[Answer]] = set()
    try:
        while True:
            running |= {executor.submit(task, one) for one in islice(waiting, at_once - len(running))}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (one.result() for one in done)
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise


def _pool(count: int, method: str) -> Executor:
    return ProcessPoolExecutor(count, multiprocessing.get_context(method), _end_with_parent)


def _copies(count: int) -> Executor:
    """Which are there when this returns. What was imported is looked at no more for garbage, so its memory stays
    common to all."""
    gc.freeze()
    executor = _pool(count, "fork")
    executor.submit(int).result()
    return executor


def _end_with_parent() -> None:
    """A pool's processes do not notice by themselves that its owner was killed. An interrupt of the terminal is the
    owner's, who ends them, and so is what it does when it is asked to leave."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
