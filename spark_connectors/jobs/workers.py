"""Workers of a job: processes of this machine, or Spark's executors.

A task is a function with its argument, and both are pickled. Its result is small, because a task writes its rows to
files. A task may run twice: Spark repeats it if its executor is lost.
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

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_AHEAD: Final = 2  # tasks taken for each worker in advance


class Workers(Protocol):
    @property
    def count(self) -> int:
        """Number of tasks that run at once."""

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
        """Results of the tasks, in the order in which they finish. `arguments` is read only a little ahead. If a task
        fails, its error is raised after the running tasks have ended.
        """

    def close(self) -> None:
        """End the workers. They cannot be used any more."""


class OneByOne:
    """Workers that run tasks in this process, in order, without pickling."""

    count = 1

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
        """See Workers."""
        return map(task, arguments)

    def close(self) -> None:
        """See Workers."""


class LocalWorkers:
    """Processes of this machine. They stay for the next tasks, unless one has failed. They end when the process that
    started them ends, in any way.

    The first processes are forks of this process, so nothing has to be imported again. Later ones, and all ones of a
    process with threads, are new: a fork copies locks that are held, but not the threads that hold them. Libraries that
    start threads at import, such as numpy and pyarrow, support forks before they have worked. So the forks come first.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._executor = _copies(count) if sys.platform == "linux" and threading.active_count() == 1 else None

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
        """See Workers."""
        executor, self._executor = self._executor, None
        if executor is None:
            executor = _pool(self.count, "spawn")
        yield from _mapped(executor, self.count * _AHEAD, task, arguments)
        self._executor = executor

    def close(self) -> None:
        """See Workers. Without a shutdown, a pool sometimes complains when the interpreter ends."""
        if self._executor is not None:
            self._executor.shutdown()


class SparkWorkers:
    """Executors of a Spark session. Each task is a Spark job of its own, so its result is available when it is done."""

    def __init__(self, session: Any) -> None:
        self._context = session.sparkContext
        self.count = int(self._context.defaultParallelism)

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
        """See Workers."""

        def in_spark(one: Argument) -> Result:
            (found,) = self._context.parallelize([one], 1).map(task).collect()
            result: Result = found
            return result

        executor = ThreadPoolExecutor(self.count)
        yield from _mapped(executor, self.count * _AHEAD, in_spark, arguments)
        executor.shutdown()

    def close(self) -> None:
        """See Workers. The session stays, because it belongs to the caller."""


def outcomes(
    workers: Workers, task: Callable[[Argument], Result], arguments: Sequence[Argument]
) -> Iterator[tuple[Argument, Result]]:
    """Results as from `Workers.map`, each with its argument, which is not sent back."""
    for place, result in workers.map(partial(_numbered, task), list(enumerate(arguments))):
        yield arguments[place], result


def _numbered(task: Callable[[Argument], Result], numbered: tuple[int, Argument]) -> tuple[int, Result]:
    place, one = numbered
    return place, task(one)


def _mapped(
    executor: Executor, at_once: int, task: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> Iterator[Result]:
    """Results of the tasks, as they finish. If the iteration is not complete, the executor is shut down."""
    waiting = iter(arguments)
    running: set[Future[Result]] = set()
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
    """Pool of forked processes, which exist when this returns. Imported objects are frozen for the garbage collector,
    so their memory stays shared.
    """
    gc.freeze()
    executor = _pool(count, "fork")
    executor.submit(int).result()
    return executor


def _end_with_parent() -> None:
    """Set up a process of the pool. It ends itself if its parent is killed, which it would not notice otherwise. It
    ignores interrupts of the terminal, because the parent ends it, and leaves by default on SIGTERM and SIGHUP.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
