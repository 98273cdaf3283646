"""The reaper's choice of connections to check, and the times of its checks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio

from kafkawire.server.reaper import Reaper


@dataclass(eq=False)
class Connection:
    idle_until_s: float
    is_idle: bool = True
    has_ended: bool = False
    ends_at_s: float | None = None
    idle_bucket: int = -1
    is_watched: bool = False
    checks: list[float] = field(default_factory=list)

    def check(self, now_s: float) -> None:
        self.checks.append(now_s)
        if self.ends_at_s is not None and now_s >= self.ends_at_s:
            self.has_ended = True


async def run_for(reaper: Reaper, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await reaper.run()


async def test_busy_connection_is_checked_each_second_and_idle_connection_at_its_due_time() -> None:
    start_s = trio.current_time()
    reaper = Reaper()
    busy, idle = Connection(start_s + 600, is_idle=False), Connection(start_s + 20)
    for one in (busy, idle):
        reaper.watch(one)
    await run_for(reaper, 30.5)
    assert len(busy.checks) == 30
    assert [round(at - start_s) for at in idle.checks][:2] == [1, 21]


async def test_ended_connection_is_not_checked_any_more() -> None:
    start_s = trio.current_time()
    reaper = Reaper()
    ending, gone = Connection(start_s + 5, is_idle=False, ends_at_s=start_s + 3), Connection(start_s + 5)
    for one in (ending, gone):
        reaper.watch(one)
    await run_for(reaper, 1.5)
    gone.has_ended = True
    reaper.forget(gone)
    await run_for(reaper, 10)
    assert ending.checks[-1] == pytest.approx(start_s + 3, abs=1)
    assert len(gone.checks) == 1


async def test_idle_connection_that_becomes_busy_is_checked_each_second_again() -> None:
    start_s = trio.current_time()
    reaper = Reaper()
    one = Connection(start_s + 1000)
    reaper.watch(one)
    await run_for(reaper, 5)
    assert len(one.checks) == 1
    one.is_idle = False
    reaper.watch(one)
    await run_for(reaper, 5.5)
    assert len(one.checks) >= 5
