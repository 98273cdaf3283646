"""Injection of a plan's faults into the brokers, each some client operations after the previous one.

Many faults last for a while, and others come meanwhile. After the last one has begun, all end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import trio

from kafkawire.tests.cluster_simulation.machines import BROKERS, Machine, Machines
from kafkawire.tests.cluster_simulation.moves import Mover
from kafkawire.tests.cluster_simulation.plan import LAGS_MAX_S, PAUSED_MAX, FaultKind, Plan
from kafkawire.tests.cluster_simulation.wires import Direction
from kafkawire.tests.simulation.faults import disk_errors, wait_for_load
from kafkawire.tests.simulation.history import History
from kafkawire.tests.simulation.plan import FaultKind as OneFaultKind

STRIKE_WITHIN_S = 4.0
STALLED_S = 5.0
CHANGES_MAX = 40  # the most file operations of a process before its planned death
SILENT = 0.5  # how often a machine loses power without a sign to its peers
FOLLOWS_AT_ONCE = 0.25
DISK_ERRORS = {
    FaultKind.IO_ERROR: OneFaultKind.IO_ERROR,
    FaultKind.FULL_DISK: OneFaultKind.FULL_DISK,
    FaultKind.SHORT_WRITE: OneFaultKind.SHORT_WRITE,
    FaultKind.LOG_DIR_LOST: OneFaultKind.LOG_DIR_LOST,
}  # as of one broker


@dataclass
class Faults:
    """The faults of a plan. `chosen`: only faults with these numbers are injected, to find the ones that matter."""

    plan: Plan
    machines: Machines
    history: History
    mover: Mover
    chosen: frozenset[int]
    bitten: list[FaultKind] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """Counts of the faults that had an effect, for some kinds."""
        return Counter({"disk errors": sum(kind in DISK_ERRORS for kind in self.bitten)})

    async def run(self) -> None:
        """Inject all faults, and return when the last one is over."""
        async with trio.open_nursery() as nursery:
            for number, kind in enumerate(self.plan.faults):
                rng = Random(f"{self.plan.seed}/fault-{number}")
                if rng.random() >= FOLLOWS_AT_ONCE:
                    await wait_for_load(self.history, self.plan.operations_between_faults)
                if number in self.chosen:
                    self.history.note("fault", number, kind.value, round(trio.current_time(), 6))
                    nursery.start_soon(self._happen, kind, rng)
                    await trio.sleep(rng.choice((0.0, 0.01, 0.3)))

    async def _happen(self, kind: FaultKind, rng: Random) -> None:
        handlers = {
            FaultKind.CLEAN_RESTART: self._restart,
            FaultKind.ROLLING_RESTART: self._roll,
            FaultKind.KILL_LEADER_WITHIN: self._end_within,
            FaultKind.POWER_WITHIN: self._end_within,
            FaultKind.PAUSE: self._stand_still,
            FaultKind.PAUSE_LONG: self._stand_still,
            FaultKind.LINKS_BROKEN: self._break_links,
            FaultKind.SLOW_DISK: self._slow_disk,
            FaultKind.STALLED_DISK: self._stall,
            FaultKind.STORE_LOST: self._lose_session,
            FaultKind.STORE_LAGS: self._lag,
            FaultKind.MOVE: self._move,
            **dict.fromkeys(DISK_ERRORS, self._fail_disk),
        }
        handler = handlers.get(kind)
        if handler is None:
            handler = self._end if kind.name.startswith(("KILL", "POWER")) else self._part
        if await handler(kind, rng):
            self.bitten.append(kind)

    # Lives

    async def _end(self, kind: FaultKind, rng: Random) -> bool:
        count = {"ONE": 1, "TWO": 2, "ALL": len(BROKERS)}[kind.name.rpartition("_")[2]]
        victims = sorted(self._some(rng, count), key=lambda one: one.broker_id)
        power_cut = kind.name.startswith("POWER")
        lives = [one.lives.shared.history.life for one in victims]
        for one in victims:
            one.lives.rests_s = self._rest_s(rng)
            if power_cut and rng.random() < SILENT:
                self.machines.wires.lose_power(one.broker_id)
            one.lives.end(power_cut=power_cut)
        for one, life in zip(victims, lives, strict=True):
            await one.lives.next_life(life)
        return True

    async def _end_within(self, kind: FaultKind, rng: Random) -> bool:
        one = self._leader(rng)
        life = one.lives.shared.history.life
        one.lives.rests_s = self._rest_s(rng)
        one.lives.crash_after(rng.randint(0, CHANGES_MAX), power_cut=kind is FaultKind.POWER_WITHIN)
        with trio.move_on_after(STRIKE_WITHIN_S):
            await one.lives.next_life(life)
        one.world.disk.changes_until_end = None
        return one.lives.shared.history.life > life

    async def _restart(self, _kind: FaultKind, rng: Random) -> bool:
        [one] = self._some(rng, 1)
        one.lives.rests_s = self._rest_s(rng)
        await one.lives.restart_cleanly()
        return True

    async def _roll(self, _kind: FaultKind, rng: Random) -> bool:
        for one in self._some(rng, len(BROKERS)):
            one.lives.rests_s = 0.01, 0.3
            await one.lives.restart_cleanly()
            await trio.sleep(rng.choice((0.0, 0.5, 5.0)))
        return True

    async def _stand_still(self, kind: FaultKind, rng: Random) -> bool:
        one = self._leader(rng) if rng.random() < 0.7 else self._some(rng, 1)[0]
        if not one.world.stand_still():
            return False
        await trio.sleep(self._longer_than_session_s(rng) if kind is FaultKind.PAUSE_LONG else rng.uniform(0.05, 2))
        one.world.go_on()
        return True

    # Links

    async def _part(self, kind: FaultKind, rng: Random) -> bool:
        """Cut brokers off from each other, or from the metadata store."""
        if kind.name.startswith("STORE"):
            return await self._leave_store(kind, rng)
        directions = _directions(kind, rng)
        self.machines.wires.cut(directions)
        await trio.sleep(rng.choice((0.3, 2.0, 8.0, self._longer_than_session_s(rng))))
        self.machines.wires.heal(directions)
        return True

    async def _break_links(self, _kind: FaultKind, rng: Random) -> bool:
        return self.machines.wires.break_all(self._leader(rng).broker_id) > 0

    # The metadata store

    async def _lose_session(self, _kind: FaultKind, rng: Random) -> bool:
        store = self._leader(rng).world.session
        if store is None:
            return False
        self.machines.ensemble.expire(store)
        return True

    async def _leave_store(self, kind: FaultKind, rng: Random) -> bool:
        chosen = self._some(rng, len(BROKERS) if kind is FaultKind.STORE_AWAY_FROM_ALL else 1)
        stores = [(one, one.world.session) for one in chosen]
        for _, store in stores:
            if store is not None:
                store.disconnected = True
        is_long = kind is FaultKind.STORE_AWAY_LONG or rng.random() < 0.3
        await trio.sleep(self._longer_than_session_s(rng) if is_long else rng.uniform(0.05, 1.5))
        for one, store in stores:
            if store is not None and store is one.world.session and not one.world.disk.is_dead:
                store.disconnected = False
        return True

    async def _lag(self, _kind: FaultKind, rng: Random) -> bool:
        [one] = self._some(rng, 1)
        store = one.world.session
        if store is None:
            return False
        store.lagging = store.has_deposed_leader = True
        await trio.sleep(rng.choice((0.3, 2.0, LAGS_MAX_S)))
        store.lagging = store.has_deposed_leader = False
        store.advance()
        return True

    # Replicas

    async def _move(self, _kind: FaultKind, rng: Random) -> bool:
        return await self.mover.move(rng.choice(self.plan.everything), rng)

    # Disks

    async def _slow_disk(self, _kind: FaultKind, rng: Random) -> bool:
        [one] = self._some(rng, 1)
        speed = one.world.speed
        before = speed.slow_jobs
        speed.slow_s = rng.choice((0.02, 0.2, 1.0))
        await trio.sleep(rng.uniform(0.5, 6.0))
        speed.slow_s = 0.0
        return speed.slow_jobs > before

    async def _stall(self, _kind: FaultKind, rng: Random) -> bool:
        """Slow down a leader's disk: followers take records that are not durable on the leader. Then crash it."""
        one = self._leader(rng)
        if one.broker is None:
            return False
        one.world.speed.slow_s = STALLED_S
        await wait_for_load(self.history, rng.randint(1, 12))
        one.lives.rests_s = self._rest_s(rng)
        await one.lives.crash(power_cut=rng.random() < 0.7)
        one.world.speed.slow_s = 0.0
        return True

    async def _fail_disk(self, kind: FaultKind, rng: Random) -> bool:
        """Let operations of a disk fail. Only a restart repairs its effect."""
        one = self._leader(rng)
        disk, life = one.world.disk, one.lives.shared.history.life
        before = disk.hits
        disk.faults.extend(disk_errors(DISK_ERRORS[kind], rng, rng.choice(self.plan.log_dirs)))
        with trio.move_on_after(STRIKE_WITHIN_S):
            while disk.hits == before and one.lives.shared.history.life == life:
                await trio.sleep(0.01)
        await trio.sleep(rng.choice((0.0, 0.05, 0.5, self.plan.session_timeout_s)))
        disk.faults.clear()
        if disk.hits > before:
            one.lives.rests_s = self._rest_s(rng)
            ends = rng.randrange(3)
            await (one.lives.restart_cleanly() if ends == 0 else one.lives.crash(power_cut=ends == 1))
            while _has_lost_a_dir(one):  # by an error that the operating system reports only to this process
                await one.lives.restart_cleanly()
        return disk.hits > before

    # Affected brokers, and durations

    def _some(self, rng: Random, count: int) -> list[Machine]:
        return rng.sample([*self.machines], count)

    def _leader(self, rng: Random) -> Machine:
        """The leader of some partition, if there is one, else any broker."""
        state = self.machines.state(rng.choice(self.plan.targets))
        if state is None or state.leader not in BROKERS:
            return self._some(rng, 1)[0]
        return self.machines.all[state.leader]

    def _longer_than_session_s(self, rng: Random) -> float:
        return self.plan.session_timeout_s * rng.uniform(1.0, PAUSED_MAX)

    def _rest_s(self, rng: Random) -> tuple[float, float]:
        """The bounds of the seconds for which a broker is down: restarted at once, or down for longer than its session
        lasts."""
        long_s = self.plan.session_timeout_s
        return rng.choice(((0.01, 0.3), (0.5, 3.0), (long_s, long_s * 1.5)))


def _has_lost_a_dir(machine: Machine) -> bool:
    broker = machine.broker
    return broker is not None and any(one.offline_reason is not None for one in broker.store.statistics())


def _directions(kind: FaultKind, rng: Random) -> list[Direction]:
    """The directions that a fault cuts."""
    first, second, third = rng.sample(BROKERS, len(BROKERS))
    match kind:
        case FaultKind.CUT_PAIR:
            return [(first, second), (second, first)]
        case FaultKind.CUT_ONE_WAY:
            return [(first, second)]
        case FaultKind.DEAF:
            return [(second, first), (third, first)]
        case _:
            return [(first, second), (second, first), (first, third), (third, first)]
