"""A run of one seed with three brokers, from its start to the verdict."""

from __future__ import annotations

import signal
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random

import trio
import trio.testing

import engine.commit.group_committer
from coordinator.testing.simulated_metadata_store import FakeEnsemble
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.tests.cluster_simulation.checker import check
from kafkawire.tests.cluster_simulation.clients import (
    PartitionCommitter,
    PartitionConsumer,
    PartitionReader,
    PartitionWanderer,
    PartitionWriter,
    with_any_broker,
    with_leader_network,
)
from kafkawire.tests.cluster_simulation.faults import Faults
from kafkawire.tests.cluster_simulation.machines import BROKERS, Machines, run_all
from kafkawire.tests.cluster_simulation.moves import Mover
from kafkawire.tests.cluster_simulation.observer import Observer
from kafkawire.tests.cluster_simulation.plan import GROUP, OFFSETS, TRANSACTION_STATE, Plan, plan
from kafkawire.tests.cluster_simulation.transactions import PartitionTransactions
from kafkawire.tests.cluster_simulation.wires import Wires
from kafkawire.tests.simulation.admin import Admin
from kafkawire.tests.simulation.audit import Auditor
from kafkawire.tests.simulation.checker import Anomaly
from kafkawire.tests.simulation.group_checker import check_groups, stale_offsets
from kafkawire.tests.simulation.group_history import GroupHistory
from kafkawire.tests.simulation.history import History, Place, StoredRecord
from kafkawire.tests.simulation.network import Network
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.run import CPU_TIME_MAX_S, Result, TooLong, too_long
from kafkawire.tests.simulation.shared import Shared
from kafkawire.tests.simulation.transaction_checker import check_transactions

OPERATIONS_MIN = 200
FAULTS_MIN = 2
FINISH_WITHIN_S = 600.0  # simulated seconds after the last fault
SETTLE_WITHIN_S = 120.0  # until all replicas are in sync and equal
ANSWERS_WITHIN_S = 30.0  # until the group answers after that
WANDERER_PAUSE_S = 0.2
FOUNDER = "founder"


def run_seed(seed: int, faults: Collection[int] | None = None) -> Result:
    """Run a seed, with all its faults or only the chosen ones."""
    trio._core._run._r.seed(seed)
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_TIME_MAX_S)
    the_plan, committing = plan(seed), vars(engine.commit.group_committer)
    before = committing["OVERLAP_MIN_BYTES"]
    committing.update(OVERLAP_MIN_BYTES=the_plan.overlap_min_bytes)
    try:
        return trio.run(_run, the_plan, faults, clock=trio.testing.MockClock(autojump_threshold=0))
    except (Exception, BaseExceptionGroup, TooLong):
        return Result(seed, 0, 0, 0, "", (Anomaly("simulation crashed", traceback.format_exc()),))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        committing.update(OVERLAP_MIN_BYTES=before)


async def _run(the_plan: Plan, chosen: Collection[int] | None) -> Result:
    run = _Run(the_plan, frozenset(range(len(the_plan.faults)) if chosen is None else chosen))
    final = await run.everything()
    history, machines = run.history, run.machines
    history.troubles += machines.troubles()
    brokers = [one.lives.shared.history for one in machines]
    anomalies = check(history, final, run.observer.observations, brokers) + check_groups(run.groups, may_be_stale=True)
    anomalies += check_transactions(run.transactions.history)
    stale = stale_offsets(run.groups)
    anomalies += [Anomaly("stale for too long", str(one)) for one in stale if one.age_ms > the_plan.stale_max_ms]
    if chosen is None and not anomalies:
        if history.operations < OPERATIONS_MIN:
            anomalies.append(Anomaly("idle", f"{history.operations} operations"))
        if len(run.faults.bitten) < FAULTS_MIN:
            anomalies.append(Anomaly("idle", f"faults that bit: {run.faults.bitten}"))
    lives = sum(one.lives.shared.history.life for one in machines)
    for one in machines:
        history.note(one.broker_id, one.lives.shared.history.trace.hexdigest())
    trace = history.trace.hexdigest()
    result = Result(the_plan.seed, history.operations, len(run.faults.bitten), lives, trace, tuple(anomalies))
    counts = Counter({"stale offsets": len(stale)})
    return replace(result, counts=counts + run.mover.counts + run.transactions.counts + run.faults.counts)


@dataclass
class PartitionAuditor(PartitionConsumer, Auditor):
    """The auditor of one partition."""


class _Run:
    """The parts of one run."""

    def __init__(self, the_plan: Plan, chosen: frozenset[int]) -> None:
        self.plan = the_plan
        seed = the_plan.seed
        self.history = History()
        ensemble = FakeEnsemble(Random(f"{seed}/ensemble"), None, the_plan.session_timeout_s)
        plans = {topic.name: topic for topic in the_plan.topics}
        wires = Wires(Random(f"{seed}/wires"))
        self.machines = Machines(seed, self.history, plans, the_plan.properties, ensemble, wires)
        self.shared = Shared(seed, self.history, Network(self.machines.all[1].world), plans)
        self.history.now_ms = self.shared.now_ms
        self.mover = Mover(with_any_broker(self.shared, self.machines, "mover"), self.machines)
        self.transactions = PartitionTransactions(
            the_plan.transactions, with_any_broker(self.shared, self.machines, "transactions"), machines=self.machines
        )
        self._loaded = [self.transactions.shared]
        self.faults = Faults(the_plan, self.machines, self.history, self.mover, chosen)
        self.observer = Observer(self.machines, the_plan.everything)
        self.groups = GroupHistory(session_timeouts_ms={GROUP: 0}, rebalance_timeouts_ms={GROUP: 0})
        self._followed: list[Shared] = []

    async def everything(self) -> dict[Place, dict[int, StoredRecord]]:
        """Run load and faults, then rest, then a last crash and the audit."""
        async with trio.open_nursery() as nursery:
            await run_all(self.machines, nursery)
            await self._create_topics()
            await self._found_coordinators()
            await self.transactions.create_topics()
            self.machines.ensemble.faults = self.plan.store_faults
            nursery.start_soon(self.observer.run)
            with trio.move_on_after(FINISH_WITHIN_S * 2) as finished:
                async with trio.open_nursery() as followers:
                    for target in self.plan.targets:
                        followers.start_soon(self._reader(target).run)
                    await self._load()
                    await self._settle()
                    ends = await self._ends()
                    for one in self._followed:
                        one.followers_until = ends
            if finished.cancelled_caught:
                self.history.troubles.append("clients did not come to their end")
            await self._last_restart()
            await self._settle()
            self.observer.note_replicas()
            await self._read_offsets_again()
            await self.transactions.last_words()
            final = await self._audit()
            for machine in self.machines:
                machine.lives.is_over = True
                machine.lives.end(power_cut=False)
            nursery.cancel_scope.cancel()
        return final

    async def _create_topics(self) -> None:
        admin = Admin(replace(self.shared, network=self.machines.all[1].network), pause_s=1.0)
        for topic in self.plan.topics:
            await admin.create(topic)

    async def _found_coordinators(self) -> None:
        """Create the internal topics: FindCoordinator does so."""
        shared = replace(self.shared, network=self.machines.all[1].network)
        for kind, target in enumerate((OFFSETS, TRANSACTION_STATE)):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[FOUNDER])
            while target in self.plan.everything and (await self._found(shared, request)):
                await trio.sleep(0.1)

    async def _found(self, shared: Shared, request: FindCoordinatorRequest) -> int:
        """The error code of a FindCoordinator."""
        answer = await shared.insist(FOUNDER, shared.rng(FOUNDER), request, 4)
        return int(answer.coordinators[0].error_code)

    async def _read_offsets_again(self) -> None:
        """Read the group's offsets. The group must answer soon after the last fault."""
        if self.plan.committers:
            with trio.move_on_after(ANSWERS_WITHIN_S) as waited:
                await self._committer(self.plan.committers).last_reading()
            if waited.cancelled_caught:
                self.history.troubles.append("the group does not answer")

    def _committer(self, number: int) -> PartitionCommitter:
        name = f"committer-{number}"
        shared = self._way(OFFSETS, name)
        self._loaded.append(shared)
        return PartitionCommitter(name, self.plan.group, shared, self.groups)

    def _way(self, target: Target, name: str) -> Shared:
        return with_leader_network(self.shared, self.machines, target, name)

    def _reader(self, target: Target) -> PartitionReader:
        name = f"reader-{target.topic}-{target.partition}"
        shared = self._way(target, name)
        self._followed.append(shared)
        return PartitionReader(name, shared, [target], uses_session=shared.rng(name).random() < 0.5)

    async def _load(self) -> None:
        async with trio.open_nursery() as load:
            for one in self.plan.writers:
                shared = self._way(one.targets[0], f"writer-{one.number}")
                self._loaded.append(shared)
                load.start_soon(PartitionWriter(one, shared).run)
            for target in self.plan.targets:
                name = f"wanderer-{target.topic}-{target.partition}"
                shared = self._way(target, name)
                self._loaded.append(shared)
                load.start_soon(PartitionWanderer(name, shared, [target], pause_s=WANDERER_PAUSE_S).run)
            load.start_soon(self.transactions.use_them)
            for number in range(self.plan.committers):
                load.start_soon(self._committer(number).run)
            await self.faults.run()
            self.machines.mend()
            await self.mover.bring_home(self.plan.everything)
            while self.history.operations < OPERATIONS_MIN:
                await trio.sleep(0.01)
            for shared in self._loaded:
                shared.is_over = True

    async def _settle(self) -> None:
        """Wait until all replicas of all partitions are in sync and equal."""
        why = [""]
        with trio.move_on_after(SETTLE_WITHIN_S):
            while any(why := [self.observer.unsettled_reason(one) for one in self.plan.everything]):
                await trio.sleep(0.05)
        for target, reason in zip(self.plan.everything, why, strict=True):
            if reason:
                self.history.troubles.append(f"{target} does not become whole: {reason}")

    def _auditor(self, target: Target) -> PartitionAuditor:
        name = f"auditor-{target.topic}-{target.partition}"
        return PartitionAuditor(name, self._way(target, name), [target])

    async def _ends(self) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for target in self.plan.targets:
            found |= await self._auditor(target).ends()
        return found

    async def _audit(self) -> dict[Place, dict[int, StoredRecord]]:
        final: dict[Place, dict[int, StoredRecord]] = {}
        for target in self.plan.targets:
            final |= await self._auditor(target).read_everything()
        return final

    async def _last_restart(self) -> None:
        """Restart all brokers, mostly at once."""
        rng = self.shared.rng("last restart")
        lives = {one: self.machines.all[one].lives for one in BROKERS}
        if rng.random() < 0.2:
            for one in lives.values():
                await one.restart_cleanly()
            return
        before, power_cut = {one: life.shared.history.life for one, life in lives.items()}, rng.random() < 0.8
        for one in lives.values():
            one.end(power_cut=power_cut)
        for broker_id, one in lives.items():
            await one.next_life(before[broker_id])
