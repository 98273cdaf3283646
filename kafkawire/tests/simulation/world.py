"""The machine under the broker: a disk that fails and loses power in the middle of a job, and a pool that can be slow.

The difference from `kafkawire.testing.MemoryDeps`: the power can fail at any single file operation, jobs take time on
the mock clock, and a job of a dead broker is never done.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar
from zlib import crc32

import trio

from engine.files.filesystem import File
from engine.log_dirs.layout import INDEX
from engine.testing.simulated_disk import Fault, SimulatedFileSystem, begin_sync
from engine.testing.simulated_loss import Operation
from kafkawire.adapters.tier import CACHE_DIRECTORY
from kafkawire.deps import Deps
from kafkawire.testing import MemoryDeps
from kafkawire.tests.simulation.history import History

T = TypeVar("T")


class PowerLost(BaseException):
    """Unwinds all work of the dead broker; no `except Exception` may catch it."""


@dataclass
class WatchedFileSystem(SimulatedFileSystem):
    """A file system that counts the faults that hit, adds each change to the trace, and can end a process at a given
    change."""

    history: History = field(default_factory=History)
    hits: int = 0
    was_hit: bool = False  # in this process
    has_lost_pages: bool = False  # in this process: a sync failed, and its data are gone
    changes_until_end: int | None = None
    on_end: Callable[[], None] | None = None
    on_failure: Callable[[str], None] = lambda _: None  # a log dir is lost: a failed operation may not be retried
    on_unreadable: Callable[[str], None] = lambda _: None
    is_dead: bool = False

    def do(self, operation: Operation) -> None:
        if self.changes_until_end is not None:
            self.changes_until_end -= 1
            if self.changes_until_end < 0:
                self.changes_until_end = None
                assert self.on_end is not None
                self.on_end()
        if self.is_dead:
            raise PowerLost
        kind, path, _, position, data, target = operation
        self.history.trace.update(f"{kind} {path} {position} {len(data)} {crc32(data)} {target}\n".encode())
        super().do(operation)
        self.operations.clear()

    def find_fault(self, kind: str, path: str) -> Fault | None:
        found = super().find_fault(kind, path)
        if found is not None:
            self.hits += 1
            self.was_hit = True
            self.has_lost_pages |= kind == "fdatasync"
            if kind == "write" and found.errno == errno.EIO:
                self.loss_reported(path)
            if kind == "read":
                self.on_unreadable(path)
            self.history.note("fault", kind, path, errno.errorcode[found.errno])
        return found

    def lose_indexes(self, log_dirs: Sequence[str]) -> None:
        """Remove the indexes. The broker can make them again, from the segments or from the remote tier."""
        for directory in [f"{one}/{INDEX}" for one in log_dirs if self.exists(f"{one}/{INDEX}")]:
            for name in self.list_dir(directory):
                self.unlink(f"{directory}/{name}")
            self.sync_dir(directory)

    def loss_reported(self, path: str) -> None:
        self.was_hit = True  # also by an error that the previous process did not get
        if f"/{INDEX}/" not in path and f"/{CACHE_DIRECTORY}/" not in path:
            self.on_failure(path)


@dataclass
class SimulatedPool:
    """A pool whose workers each do one job after the other, each after `delay_s()` seconds, and none when the broker is
    dead. A sync takes as long, beside other jobs: data that are written meanwhile are not durable by it."""

    delay_s: Callable[[], float]
    jobs_started: int = 0
    jobs_waiting: int = 0
    _workers: dict[int, trio.Lock] = field(default_factory=dict)
    _shields: dict[int, trio.CancelScope] = field(default_factory=dict)
    _is_dead: bool = False

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        async with self._waiting(), self._workers.setdefault(worker, trio.Lock()):
            await trio.sleep(self.delay_s())
            if not self._is_dead:
                return job()
        raise PowerLost  # the waiting task may be shielded: no cancellation would end it

    async def sync(self, worker: int, files: Sequence[File], *, is_urgent: bool = False) -> None:
        async with self._waiting():
            if not self._is_dead:
                end = begin_sync(files)
                await trio.sleep(self.delay_s())
                if not self._is_dead:
                    end()
                    return
        raise PowerLost

    @asynccontextmanager
    async def _waiting(self) -> AsyncIterator[None]:
        """A block that no cancellation ends, only the death of the broker."""
        self.jobs_started += 1
        number = self.jobs_started
        self.jobs_waiting += 1
        try:
            with trio.CancelScope(shield=True) as shield:
                self._shields[number] = shield
                yield
        finally:
            self.jobs_waiting -= 1
            del self._shields[number]

    def die(self) -> None:
        """Drop all waiting and future jobs."""
        self._is_dead = True
        for shield in self._shields.values():
            shield.cancel()

    def close(self) -> None:
        """Do nothing: there are no resources."""


@dataclass
class SimulatedWorld(MemoryDeps):
    """A MemoryDeps with this disk and this pool, a new pool for each process."""

    disk: WatchedFileSystem = field(default_factory=WatchedFileSystem)
    speed: DiskSpeed = field(default_factory=lambda: DiskSpeed(Random(0)))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.views.random = Random(self.seed)
        self.filesystem = self.disk
        self.pool = SimulatedPool(self.speed.draw_s)

    def start_deps(self) -> Deps:
        self.pool = SimulatedPool(self.speed.draw_s)
        return replace(super().start_deps(), pool=self.pool)

    def lose_session(self) -> bool:
        """Expire the broker's metadata session. Return whether there was one."""
        for store in self.sessions:
            self.ensemble.expire(store)
        return bool(self.sessions)

    def excuses(self, _failure: BaseException) -> bool:
        """Whether the broker may give up for this reason: its disks failed."""
        return self.disk.was_hit

    def end_life(self) -> None:
        """End the process: from this instant on the broker changes nothing."""
        self.disk.is_dead = True
        self.disk.changes_until_end = None
        self.pool.die()
        self.views.crash()

    def restore(self, *, power_cut: bool, rng: Random) -> None:
        """Restore the state that the next process finds, after all tasks of the old one have ended."""
        if power_cut:
            self.disk.crash(rng)
        else:
            self.disk.end_process()
        for store in self.sessions:
            self.ensemble.expire(store)
        self.sessions.clear()
        self.disk.is_dead = False
        self.disk.was_hit = self.disk.has_lost_pages = False


@dataclass
class DiskSpeed:
    """The duration of jobs: fractions of a millisecond, or the times of a sick disk."""

    rng: Random
    slow_s: float = 0.0
    slow_jobs: int = 0

    def draw_s(self) -> float:
        if self.slow_s:
            self.slow_jobs += 1
            return self.rng.uniform(0.1, 1.0) * self.slow_s
        return self.rng.uniform(0.0001, 0.001)
