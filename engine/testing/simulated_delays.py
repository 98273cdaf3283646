"""Delays of simulated disks: how long their syncs and other jobs take.

A disk that hangs reports no error: its syncs and jobs begin and never return. The workers of a pool
(`engine.files.disk.DiskWorkers`) tell disks apart, because each serves one log dir. Waits here are not cancellable,
as a system call is not.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TypeVar

import trio

from engine.files.io_workers import LoopPool

T = TypeVar("T")


@dataclass
class DiskDelays:
    """Delays by worker. They may change during a wait, which then ends when the new delay has passed."""

    _sync_s: dict[int, float] = field(default_factory=dict)
    _job_s: dict[int, float] = field(default_factory=dict)
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def set(self, workers: Iterable[int], *, sync_s: float = 0, job_s: float = 0) -> None:
        """Set how many seconds a sync, or another job, of these workers takes; with `math.inf` it never returns."""
        for worker in workers:
            self._sync_s[worker], self._job_s[worker] = sync_s, job_s
        self._changed.unpark_all()

    def hang(self, workers: Iterable[int]) -> None:
        """Make these workers hang until `set` is called."""
        self.set(workers, sync_s=inf, job_s=inf)

    async def wait_for_sync(self, worker: int) -> None:
        """Wait as long as a sync that begins now."""
        await self._wait(self._sync_s, worker)

    async def wait_for_job(self, worker: int) -> None:
        """Wait as long as a job that begins now is delayed."""
        await self._wait(self._job_s, worker)

    async def _wait(self, delays_s: dict[int, float], worker: int) -> None:
        started_s = trio.current_time()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
            while trio.current_time() < (end_s := started_s + delays_s.get(worker, 0)):
                with trio.move_on_at(end_s):
                    await self._changed.park()


class DelayedPool(LoopPool):
    """A pool on the event loop whose jobs take as long as `delays` says. A late job delays those behind it in its
    worker."""

    def __init__(self, delays: DiskDelays | None = None) -> None:
        super().__init__()
        self.delays = DiskDelays() if delays is None else delays

    async def run(self, worker: int, job: Callable[[], T]) -> T:
        return await self.run_after(worker, partial(self.delays.wait_for_job, worker), job)
