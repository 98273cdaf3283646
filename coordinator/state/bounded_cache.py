"""A cache of coordinator state whose disk may hang: calls run in the background, in order; waits for them are bounded.

The cache of an internal topic lies in one log dir, and the partitions of the topic in all of them. So a disk that hangs
must not keep coordinators of partitions on other disks from starting and stopping. A cache that does not answer is
given up: it is empty from then on, and the state logs are read instead (RULES C2). When its disk answers again, its
content is dropped, because discards and saves are missing from it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from coordinator.state.cache import Checkpoint, PartitionChange, StateCache
    from coordinator.state.log import StateRecord

    Loaded = tuple[Checkpoint, Sequence[StateRecord]] | None

ANSWER_TIMEOUT_S: Final = 10.0  # seconds without any progress; a large partition is read in less

_log = structlog.get_logger(__name__)


class _Job:
    """A call of the cache: `loaded` is its result once `done`, or None if the cache was given up before."""

    def __init__(self, call: Callable[[], Awaitable[Loaded]]) -> None:
        self.call = call
        self.done = trio.Event()
        self.loaded: Loaded = None


class BoundedCache:
    """A `StateCache` in front of another one. Use it inside `trio.run`."""

    def __init__(self, cache: StateCache, name: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._cache = cache
        self._name = name
        self._timeout_s = timeout_s
        self._jobs: deque[_Job] = deque()  # the first one is being done
        self._progress_s = 0.0  # when the first job began
        self._is_abandoned = False

    async def load(self, partition: int) -> Loaded:
        """See `StateCache`."""
        return await self._answer(partial(self._cache.load, partition))

    async def save(self, changes: Sequence[PartitionChange]) -> None:
        """See `StateCache`."""
        await self._answer(partial(self._cache.save, changes))

    async def discard(self, partition: int) -> None:
        """See `StateCache`."""
        await self._answer(partial(self._cache.discard, partition))

    def discard_soon(self, partition: int) -> None:
        """Queue a `discard` without waiting for it; later calls come after it."""
        if not self._has_stopped():
            self._enqueue(partial(self._cache.discard, partition))

    async def drop(self) -> None:
        """See `StateCache`."""
        await self._answer(self._cache.drop)

    async def close(self) -> None:
        """See `StateCache`."""
        await self._answer(self._cache.close)

    def _has_stopped(self) -> bool:
        """Whether the cache is given up. It is given up now if the first job has not returned in time."""
        if not self._is_abandoned and self._jobs and trio.current_time() >= self._progress_s + self._timeout_s:
            self._abandon()
        return self._is_abandoned

    def _enqueue(self, call: Callable[[], Awaitable[Loaded]]) -> _Job:
        job = _Job(call)
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._progress_s = trio.current_time()
            trio.lowlevel.spawn_system_task(self._work)  # no nursery is kept waiting by a call that never returns
        return job

    async def _answer(self, call: Callable[[], Awaitable[Loaded]]) -> Loaded:
        if self._has_stopped():
            await trio.lowlevel.checkpoint()
            return None
        job = self._enqueue(call)
        while not (job.done.is_set() or self._has_stopped()):
            with trio.move_on_at(self._progress_s + self._timeout_s):
                await job.done.wait()
        return job.loaded

    async def _work(self) -> None:
        while self._jobs:
            job = self._jobs[0]
            loaded = await job.call()
            if self._is_abandoned:
                self._jobs.clear()
                await self._cache.drop()
                return
            self._progress_s = trio.current_time()
            self._jobs.popleft()
            job.loaded = loaded
            job.done.set()

    def _abandon(self) -> None:
        self._is_abandoned = True
        _log.warning("state cache given up: disk does not answer", topic=self._name)
        for job in self._jobs:
            job.done.set()
