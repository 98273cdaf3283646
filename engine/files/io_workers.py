"""Where blocking file work runs.

A pool has lanes, numbered by the caller: jobs of one lane run one after the other, in order. `ThreadPool` gives each
lane a thread; `LoopPool` runs the same functions as trio tasks, so that a whole broker can be simulated on one thread.
A job gets everything as arguments and touches no state of the loop. docs/decisions/0003-where-io-runs.md has the
measurements behind the two precautions here about the interpreter lock.
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
LET_IN_EVERY_S = 0.0005
LET_IN_FOR_S = 0.00001


class WorkerPool(Protocol):
    """Runs jobs off the loop, or as if."""

    async def run(self, lane: int, job: Callable[[], T]) -> T:
        """Run it and return or raise what it does. Not cancellable: the file operation would go on anyway."""

    async def sync(self, lane: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        """Make the content of all of them durable, or raise the OSError of one. Not cancellable.

        `is_urgent`: somebody waits for it, let it cost the loop some time.
        """

    def close(self) -> None:
        """Let the workers go; no job may be running."""


class Lanes:
    """Some lanes of a pool, for jobs that may run in any order: each goes to the one with the fewest."""

    def __init__(self, pool: WorkerPool, lanes: Iterable[int]) -> None:
        self._pool = pool
        self._jobs = dict.fromkeys(lanes, 0)

    async def run(self, job: Callable[[], T]) -> T:
        """See `WorkerPool.run`."""
        return await self._on_a_lane(lambda lane: self._pool.run(lane, job))

    async def _on_a_lane(self, work: Callable[[int], Awaitable[T]]) -> T:
        lane = min(self._jobs, key=self._jobs.__getitem__)
        self._jobs[lane] = self._jobs.pop(lane) + 1  # of equally idle ones the others are next
        try:
            return await work(lane)
        finally:
            self._jobs[lane] -= 1


def sync_all(files: Sequence[File]) -> None:
    for file in files:
        file.fdatasync()


class _Job(Generic[T]):
    """A function on its way to a thread and its outcome on the way back."""

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
        """For once."""
        error, self._error = self._error, None  # it knows who performed the job: a circle, which would hold all of that
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self._result  # type: ignore[return-value]  # None only if that is what the job returned


class _LetWorkersIn(trio.abc.Instrument):
    """Lets go of the interpreter lock for a moment, now and then, while a job is out and the loop is busy.

    A busy loop polls its sockets more often than the switch interval is long. Each poll gives the lock up and has it
    back before a waiting thread is awake, and that thread's interval starts anew: it can starve for seconds.
    """

    def __init__(self) -> None:
        self._jobs_out = 0
        self._last_s = 0.0

    def job_leaves(self) -> None:
        self._jobs_out += 1
        self._last_s = time.perf_counter()  # most jobs are back before they need help

    def job_is_back(self) -> None:
        self._jobs_out -= 1

    def before_io_wait(self, timeout: float) -> None:
        if self._jobs_out and timeout <= 0:
            now_s = time.perf_counter()
            if now_s - self._last_s > LET_IN_EVERY_S:
                time.sleep(LET_IN_FOR_S)
                self._last_s = now_s


class ThreadPool:
    """One thread per lane, started when the lane is first used. Create and use it inside `trio.run`.

    Files are synced by the kernel (`engine.files.kernel_sync`) where it can, else on the lane. A lane's syncs have an
    AIO context of their own, so that they wait for no other lane's.
    """

    def __init__(self) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._token = trio.lowlevel.current_trio_token()
        self._door = _LetWorkersIn()
        trio.lowlevel.add_instrument(self._door)
        self._queues: dict[int, queue.SimpleQueue[_Job[object] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._kernel = KernelSyncs()

    async def sync(self, lane: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        descriptors = [descriptor for file in files if (descriptor := file.fileno()) is not None]
        context = self._kernel.of(lane)
        if context is not None and len(descriptors) == len(files):
            await context.sync(descriptors, is_urgent=is_urgent)
        else:
            await self.run(lane, partial(sync_all, files))

    async def run(self, lane: int, job: Callable[[], T]) -> T:
        jobs = self._queues.get(lane) or self._start(lane)
        item = _Job(job, trio.lowlevel.current_task())
        self._door.job_leaves()
        jobs.put(item)  # type: ignore[arg-type]  # the queue only ever performs it
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        self._door.job_is_back()
        return item.outcome()

    def _start(self, lane: int) -> "queue.SimpleQueue[_Job[object] | None]":
        jobs = self._queues[lane] = queue.SimpleQueue()
        thread = threading.Thread(target=self._serve, args=(jobs,), name=f"io-{lane}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return jobs

    def _serve(self, jobs: "queue.SimpleQueue[_Job[object] | None]") -> None:
        while self._serve_one(jobs.get()):
            pass  # a thread that waits holds nothing of its last job: that may be megabytes

    def _serve_one(self, job: _Job[object] | None) -> bool:
        """Whether there may be more."""
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
    """The same jobs on the loop itself, one scheduling step away: deterministic."""

    def __init__(self) -> None:
        self._lanes: dict[int, trio.Lock] = {}

    async def run(self, lane: int, job: Callable[[], T]) -> T:
        return await self.run_after(lane, trio.lowlevel.checkpoint, job)

    async def run_after(self, lane: int, wait: Callable[[], Awaitable[None]], job: Callable[[], T]) -> T:
        """As `run`, when `wait` has returned, which keeps the lane."""
        lock = self._lanes.setdefault(lane, trio.Lock())
        with trio.CancelScope(shield=True):
            await lock.acquire()
            await wait()
        try:
            return job()
        finally:
            lock.release()

    async def sync(self, lane: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        await self.run(lane, partial(sync_all, files))

    def close(self) -> None:
        """Nothing to let go of."""
