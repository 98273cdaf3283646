"""Injection of a plan's faults into a running broker, and the count of faults that had an effect.

Each fault waits for some client operations after the previous one, so that there is always load to hit. After a fault
that ends the broker's process, a new process starts on the files that are left.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

import trio

from engine.testing.simulated_disk import Fault
from kafkawire.tests.simulation.history import History
from kafkawire.tests.simulation.lives import Lives
from kafkawire.tests.simulation.plan import FaultKind, Plan
from kafkawire.tests.simulation.shared import Shared

WAIT_FOR_LOAD_S = 30.0
STRIKE_WITHIN_S = 4.0
STALLED_S = 5.0


@dataclass
class Faults:
    """The faults of a plan, one after the other. `chosen`: only faults with these numbers are injected, to find the
    ones that matter."""

    plan: Plan
    shared: Shared
    lives: Lives
    chosen: frozenset[int]
    bitten: list[FaultKind] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = self.shared.rng("faults")

    async def run(self) -> None:
        for number, kind in enumerate(self.plan.faults):
            rng = self.shared.rng(f"fault-{number}")
            await wait_for_load(self.shared.history, self.plan.operations_between_faults)
            if number in self.chosen:
                self.shared.history.note("fault", number, kind.value)
                if await self._happen(kind, rng):
                    self.bitten.append(kind)

    async def _happen(self, kind: FaultKind, rng: Random) -> bool:
        """Inject a fault, and return whether it had an effect."""
        match kind:
            case FaultKind.POWER_CUT | FaultKind.KILL:
                await self._catch_a_job(rng)
                await self.lives.crash(power_cut=kind is FaultKind.POWER_CUT)
            case FaultKind.POWER_CUT_WITHIN | FaultKind.KILL_WITHIN:
                return await self._crash_within(rng, power_cut=kind is FaultKind.POWER_CUT_WITHIN)
            case FaultKind.CRASH_AT_START:
                await self.lives.crash(power_cut=rng.random() < 0.5, changes_of_next_life=rng.randint(0, 25))
            case FaultKind.CLEAN_RESTART:
                await self.lives.restart_cleanly()
            case FaultKind.SLOW_DISK:
                return await self._slow_disk(rng)
            case FaultKind.STALL:
                await self._stall(rng)
            case FaultKind.CONNECTIONS_CUT:
                return self.shared.network.cut_all() > 0
            case FaultKind.SESSION_LOST:
                return self.lives.world.lose_session()
            case _:
                return await self._disk_error(kind, rng)
        return True

    async def _catch_a_job(self, rng: Random) -> None:
        """Wait for a moment to strike: mostly while file work is under way, often while it is slow."""
        world = self.lives.world
        if rng.random() < 0.5:
            world.speed.slow_s = rng.choice((0.05, 0.3))
        with trio.move_on_after(2):
            while rng.random() < 0.97 and not world.pool.jobs_waiting:
                await trio.sleep(0.001)
        await trio.sleep(rng.uniform(0, world.speed.slow_s))

    async def _crash_within(self, rng: Random, *, power_cut: bool) -> bool:
        life = self.shared.history.life
        self.lives.crash_after(rng.randint(0, 40), power_cut=power_cut)
        with trio.move_on_after(STRIKE_WITHIN_S):
            await self.lives.next_life(life)
        self.lives.world.disk.changes_until_end = None
        return self.shared.history.life > life

    async def _slow_disk(self, rng: Random) -> bool:
        speed = self.lives.world.speed
        before = speed.slow_jobs
        speed.slow_s = rng.choice((0.02, 0.2, 2.0))
        await trio.sleep(rng.uniform(0.2, 2.0))
        speed.slow_s = 0.0
        return speed.slow_jobs > before

    async def _stall(self, rng: Random) -> None:
        """Slow down the disk until sent records wait for it, cut the connections so that producers retry, and cut the
        power."""
        self.lives.world.speed.slow_s = STALLED_S
        await wait_for_load(self.shared.history, rng.randint(1, 6))
        self.shared.network.cut_all()
        self.shared.retry_quickly = True
        await trio.sleep(rng.uniform(0.02, 0.4))
        if rng.random() < 0.6:
            await self._next_job(rng.randint(1, 2))
        self.shared.retry_quickly = False
        await self.lives.crash(power_cut=True)

    async def _next_job(self, count: int) -> None:
        """Wait until the jobs that queued up behind the stalled one have begun."""
        pool = self.lives.world.pool
        wanted = pool.jobs_started + count
        with trio.move_on_after(STALLED_S * 2):
            while pool.jobs_started < wanted:
                await trio.sleep(0.01)
        await trio.sleep(0.05)

    async def _disk_error(self, kind: FaultKind, rng: Random) -> bool:
        disk, life = self.lives.world.disk, self.shared.history.life
        before = disk.hits
        faults = disk_errors(kind, rng, rng.choice(self.plan.log_dirs))
        disk.faults.extend(faults)
        with trio.move_on_after(STRIKE_WITHIN_S):
            while disk.hits == before and self.shared.history.life == life:
                await trio.sleep(0.01)
        await trio.sleep(rng.choice((0.0, 0.05, 0.5)))
        disk.faults.clear()
        if self.lives.has_lost_a_dir or kind is FaultKind.LOG_DIR_LOST or rng.random() < 0.3:
            await self._recover_from_error(rng)
        return disk.hits > before

    async def _recover_from_error(self, rng: Random) -> None:
        """Restart the broker: only that brings a failed disk back."""
        match rng.randrange(3):
            case 0:
                await self.lives.restart_cleanly()
            case 1:
                await self.lives.crash(power_cut=False)
            case _:
                await self.lives.crash(power_cut=True)


async def wait_for_load(history: History, operations: int) -> None:
    """Wait until clients have done that many more operations, or cannot."""
    wanted = history.operations + operations
    with trio.move_on_after(WAIT_FOR_LOAD_S):
        while history.operations < wanted:
            await trio.sleep(0.01)


def disk_errors(kind: FaultKind, rng: Random, directory: str) -> list[Fault]:
    """Faults that make operations in a log dir fail."""
    kinds: tuple[str, ...]
    if kind is FaultKind.FULL_DISK:
        kinds = ("write", "create") if rng.random() < 0.5 else ("write",)
        is_lasting = rng.random() < 0.5
        return [
            Fault(one, errno.ENOSPC, ".log", rng.randint(0, 5), is_lasting=is_lasting, directory=directory)
            for one in kinds * (1 if is_lasting else 3)
        ]
    if kind is FaultKind.SHORT_WRITE:
        code = rng.choice((errno.EIO, errno.ENOSPC))
        suffix = rng.choice((".log", ""))
        written_bytes = rng.choice((1, 10, 61, 100, 1000))
        return [Fault("write", code, suffix, rng.randint(0, 10), written_bytes=written_bytes, directory=directory)]
    if kind is FaultKind.LOG_DIR_LOST:
        kinds = ("write", "fdatasync", "create", "sync_dir", "rename", "unlink")
        return [Fault(one, errno.EIO, is_lasting=True, directory=directory) for one in kinds]
    one = rng.choice(("fdatasync", "fdatasync", "write", "create", "sync_dir", "rename", "read", "unlink"))
    return [Fault(one, errno.EIO, skip=rng.randint(0, 10), directory=directory)]
