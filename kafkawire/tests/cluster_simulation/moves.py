"""Reassignments of partitions while all other faults happen; some are cancelled on their way (KIP-455).

An added broker may be cut off from the others meanwhile: the copy of a small log would otherwise be over before a fault
could hit it. In the end all partitions are on all brokers again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import trio

from coordinator.controller.reassignments import wanted
from kafkawire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.tests.cluster_simulation.machines import BROKERS, Machines
from kafkawire.tests.simulation.plan import Target
from kafkawire.tests.simulation.shared import Shared

NAME = "mover"
MOVED, CALLED_BACK = "reassignments", "called back under way"
ORDERS_MAX = 3  # the most requests of one move
CUT_OFF = 0.6  # how often an added broker is cut off
BACK = 0.5
HOME = 0.5
TRIES_EVERY_S = 0.1
NOT_NOW = ErrorCode.REQUEST_TIMED_OUT  # the metadata store does not answer
# No reassignment is under way, or no other replica is in sync any more.
NOT_BACK = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


@dataclass
class Mover:
    """Requests reassignments. `counts`: the ones that changed the replicas."""

    shared: Shared
    machines: Machines
    counts: Counter[str] = field(default_factory=Counter)

    async def move(self, target: Target, rng: Random) -> bool:
        """Reassign a partition to fewer brokers, and from there to others, or back. Return whether it changed."""
        before = self.counts[MOVED]
        await self._order(target, rng.sample(BROKERS, rng.choice((1, 2, 2))), rng)
        for _ in range(rng.randint(1, ORDERS_MAX)):
            await self._move(target, rng.sample(BROKERS, rng.choice((1, 2, 2, 3))), rng)
        if rng.random() < HOME:
            await self._order(target, BROKERS, rng)
        return self.counts[MOVED] > before

    async def bring_home(self, targets: Sequence[Target]) -> None:
        """Reassign all partitions to all brokers, after the faults."""
        for target in targets:
            while not await self._order(target, BROKERS, self.shared.rng(NAME)):
                await trio.sleep(TRIES_EVERY_S)

    async def _move(self, target: Target, replicas: Sequence[int], rng: Random) -> None:
        state = self.machines.state(target)
        before = () if state is None else wanted(state)
        added = sorted({*replicas} - {*before})
        cut = _all_directions(rng.choice(added)) if added and rng.random() < CUT_OFF else []
        self.machines.wires.cut(cut)
        self.counts[MOVED] += await self._order(target, replicas, rng) and {*replicas} != {*before}
        await trio.sleep(rng.choice((0.0, 0.05, 0.5, 5.0)))
        if rng.random() < BACK:
            self.counts[CALLED_BACK] += await self._order(target, None, rng)
        self.machines.wires.heal(cut)

    async def _order(self, target: Target, replicas: Sequence[int] | None, rng: Random) -> bool:
        """Request a reassignment to these replicas, or with None its cancellation. Return whether the broker accepted
        it."""
        requested = None if replicas is None else [*replicas]
        partition = ReassignablePartition(partition_index=target.partition, replicas=requested)
        topic = ReassignableTopic(name=target.topic, partitions=[partition])
        answer = await self.shared.insist(NAME, rng, AlterPartitionReassignmentsRequest(topics=[topic]), 1)
        code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
        self.shared.history.note(NAME, target, requested, code)
        if code and code != NOT_NOW and not (requested is None and code in NOT_BACK):
            self.shared.history.troubles.append(f"{NAME}: {code.name} for {target} on its way to {requested}")
        return not code


def _all_directions(broker_id: int) -> list[tuple[int, int]]:
    """All directions to and from a broker."""
    others = [one for one in BROKERS if one != broker_id]
    return [(broker_id, one) for one in others] + [(one, broker_id) for one in others]
