"""Delays of simulated disks: how long their syncs and other jobs take.

A disk that hangs reports no error: its syncs and jobs begin and never return. The lanes of the worker pool
(`engine.files.disk.DiskLanes`) tell disks apart, because each serves one log dir. Waits here are not cancellable, as a
system call is not.
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
    """Delays by lane. They may change during a wait, which then ends when the new delay has passed."""

    _sync_s: dict[int, float] = field(default_factory=dict)
    _job_s: dict[int, float] = field(default_factory=dict)
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def set(self, lanes: Iterable[int], *, sync_s: float = 0, job_s: float = 0) -> None:
        """Set how many seconds a sync, or another job, of these lanes takes; with `math.inf` it never returns."""
        for lane in lanes:
            self._sync_s[lane], self._job_s[lane] = sync_s, job_s
        self._changed.unpark_all()

    def hang(self, lanes: Iterable[int]) -> None:
        """Make these lanes hang until `set` is called."""
        self.set(lanes, sync_s=inf, job_s=inf)

    async def of_sync(self, lane: int) -> None:
        """Wait as long as a sync that begins now."""
        await self._wait(self._sync_s, lane)

    async def of_job(self, lane: int) -> None:
        """Wait as long as a job that begins now is delayed."""
        await self._wait(self._job_s, lane)

    async def _wait(self, delays_s: dict[int, float], lane: int) -> None:
        begun_s = trio.current_time()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
            while trio.current_time() < (end_s := begun_s + delays_s.get(lane, 0)):
                with trio.move_on_at(end_s):
                    await self._changed.park()


class DelayedPool(LoopPool):
    """A pool on the event loop whose jobs take as long as `delays` says. A late job delays those behind it in its
    lane."""

    def __init__(self, delays: DiskDelays | None = None) -> None:
        super().__init__()
        self.delays = DiskDelays() if delays is None else delays

    async def run(self, lane: int, job: Callable[[], T]) -> T:
        return await self.run_after(lane, partial(self.delays.of_job, lane), job)
