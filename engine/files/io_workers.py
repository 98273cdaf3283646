"""Worker pools, which run blocking file work.

A pool has workers, numbered by the caller: the jobs of a worker run one after the other. `ThreadPool` gives each
worker a thread. `LoopPool` runs the same functions as trio tasks, so that one thread simulates a whole broker.
A job gets all its input as arguments, and touches no state of the event loop. docs/decisions/0003-where-io-runs.md has
the measurements behind the two precautions here about the interpreter lock.
"""

import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import trio

from engine.files.filesystem import File
from engine.files.kernel_sync import KernelSyncs

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.00005
YIELD_EVERY_S = 0.0005
YIELD_FOR_S = 0.00001


class WorkerPool(Protocol):
    """Runs jobs on threads, or on the event loop in a simulation."""

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        """Run a job, and return its result or raise its error. Not cancellable, because the file operation would go
        on."""

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        """Make the content of files durable, or raise the OSError of one. Not cancellable.

        `is_urgent`: a commit batch waits for it, so it may cost the event loop some time.
        """

    def close(self) -> None:
        """End the workers; no job may be running."""


class Workers:
    """Several workers of a pool, for jobs in any order: each job goes to the worker with the fewest."""

    def __init__(self, pool: WorkerPool, workers: Iterable[int]) -> None:
        self._pool = pool
        self._jobs = dict.fromkeys(workers, 0)

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job, as `WorkerPool.run`."""
        return await self._on_a_worker(lambda worker: self._pool.run(worker, job))

    async def _on_a_worker(self, work: Callable[[int], Awaitable[T]]) -> T:
        worker = min(self._jobs, key=self._jobs.__getitem__)
        self._jobs[worker] = self._jobs.pop(worker) + 1  # among equally idle workers, use another one next
        try:
            return await work(worker)
        finally:
            self._jobs[worker] -= 1


def sync_all(files: Sequence[File]) -> None:
    for file in files:
        file.fdatasync()


class _Job(Generic[T]):
    """A function on its way to a thread, and its outcome on the way back."""

    __slots__ = ("_error", "_function", "_result", "_task")

    def __init__(self, function: Callable[[], T], task: trio.lowlevel.Task) -> None:
        self._function = function
        self._task = task
        self._result: T | None = None
        self._error: BaseException | None = None

    def perform(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def wake_task(self) -> None:
        trio.lowlevel.reschedule(self._task)

    def outcome(self) -> T:
        """Return the result, or raise the error. May be called once."""
        error, self._error = self._error, None  # its traceback refers to this job: a cycle would keep all its data
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self._result  # type: ignore[return-value]  # None only if that is what the job returned


class _InterpreterYields(trio.abc.Instrument):
    """Releases the interpreter lock for a moment at intervals, while a job runs and the event loop is busy.

    A busy loop polls its sockets more often than the switch interval. Each poll releases the lock, and takes it again
    before a waiting thread wakes up; that thread's interval then starts again, so it may starve for seconds.
    """

    def __init__(self) -> None:
        self._jobs_out = 0
        self._last_s = 0.0

    def job_leaves(self) -> None:
        self._jobs_out += 1
        self._last_s = time.perf_counter()  # most jobs end before they need help

    def job_is_back(self) -> None:
        self._jobs_out -= 1

    def before_io_wait(self, timeout: float) -> None:
        if self._jobs_out and timeout <= 0:
            now_s = time.perf_counter()
            if now_s - self._last_s > YIELD_EVERY_S:
                time.sleep(YIELD_FOR_S)
                self._last_s = now_s


class ThreadPool:
    """A pool with one thread for each worker, started at first use. Create and use it inside `trio.run`.

    The kernel syncs files (`engine.files.kernel_sync`) where it can, else the worker's thread. Each worker has an AIO
    context of its own, so that it never waits for another worker's syncs.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._token = trio.lowlevel.current_trio_token()
        self._door = _InterpreterYields()
        trio.lowlevel.add_instrument(self._door)
        self._queues: dict[int, queue.SimpleQueue[_Job[object] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._kernel = KernelSyncs()

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        descriptors = [descriptor for file in files if (descriptor := file.fileno()) is not None]
        context = self._kernel.of(worker)
        if context is not None and len(descriptors) == len(files):
            await context.sync(descriptors, is_urgent=is_urgent)
        else:
            await self.run(worker, partial(sync_all, files))

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        jobs = self._queues.get(worker) or self._start(worker)
        item = _Job(job, trio.lowlevel.current_task())
        self._door.job_leaves()
        jobs.put(item)  # type: ignore[arg-type]  # the queue only ever performs it
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        self._door.job_is_back()
        return item.outcome()

    def _start(self, worker: int) -> "queue.SimpleQueue[_Job[object] | None]":
        jobs = self._queues[worker] = queue.SimpleQueue()
        thread = threading.Thread(target=self._serve, args=(jobs,), name=f"io-{worker}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return jobs

    def _serve(self, jobs: "queue.SimpleQueue[_Job[object] | None]") -> None:
        while self._serve_one(jobs.get()):
            pass  # so that a waiting thread keeps no data of its last job, maybe megabytes

    def _serve_one(self, job: _Job[object] | None) -> bool:
        """Run a job; False at the end."""
        if job is None:
            return False
        job.perform()
        self._token.run_sync_soon(job.wake_task)
        return True

    def close(self) -> None:
        trio.lowlevel.remove_instrument(self._door)
        self._kernel.close()
        for jobs in self._queues.values():
            jobs.put(None)
        for thread in self._threads:
            thread.join()


class LoopPool:
    """A pool that runs jobs on the event loop itself, one scheduling step later: deterministic."""

    def __init__(self) -> None:
        self._workers: dict[int, trio.Lock] = {}

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        return await self.run_after(worker, trio.lowlevel.checkpoint, job)

    async def run_after(self, worker: int, wait: Callable[[], Awaitable[None]], job: Callable[[], T]) -> T:
        """Run a job as `run`, after `wait`, which occupies the worker."""
        lock = self._workers.setdefault(worker, trio.Lock())
        with trio.CancelScope(shield=True):
            await lock.acquire()
            await wait()
        try:
            return job()
        finally:
            lock.release()

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await self.run(worker, partial(sync_all, files))

    def close(self) -> None:
        """Do nothing: there are no threads to end."""
