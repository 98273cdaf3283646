"""A check whether a world of the model becomes whole after the last fault: a serving leader, and all replicas in sync.

The search tries the steps that brokers and the controller take by themselves, one after the other, until the partition
is whole; it leaves out the faults. A partition whose possible leaders are all suspect waits for an operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerState
from kafkawire.tests.replication.world import Leads, incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkawire.tests.replication.world import Limits, World

FAULTS = (" writes", " late", " is lost", " crashes", "came last", "the preferred leads", "are enough", "is done")
STUCK = "it does not become whole"
WORLDS_MAX = 5_000  # on the way to a whole world
MORE_ELECTIONS = 4


@dataclass
class Recovery:
    """The search. `steps_of`: the possible next steps within limits; `after`: the world after a step, in its normal
    form."""

    limits: Limits
    steps_of: Callable[[World, Limits], Iterator[tuple[str, World]]]
    after: Callable[[World, World, Limits], World]
    _whole: set[int] = field(default_factory=set)  # fingerprints of worlds that are whole, or become so

    def is_stuck(self, world: World) -> bool:
        """Whether no tried way leads to a whole world."""
        limits = self._peaceful(world)
        way, seen = [(world, self._mending(world, limits))], {world}
        while way and len(seen) < WORLDS_MAX:
            here, following = way[-1]
            if hash(here) in self._whole or is_whole(here) or _waits_for_an_operator(here):
                self._whole.update(hash(one) for one, _ in way)
                return False
            reached = next((one for one in following if one not in seen), None)
            if reached is None:
                way.pop()
                continue
            seen.add(reached)
            way.append((reached, self._mending(reached, limits)))
        return True

    def _peaceful(self, world: World) -> Limits:
        """Limits that let brokers return, and allow no more faults."""
        lives = max(epoch for epoch, _ in world.newest.image.members) + 1
        return self.limits._replace(
            elections=world.newest.image.partition.leader_epoch + MORE_ELECTIONS,
            lives=max(self.limits.lives, lives) + 1,
            appends=world.appends,
            crashes=world.crashes,
            late=world.late,
        )

    def _mending(self, world: World, limits: Limits) -> Iterator[World]:
        for name, reached in self.steps_of(world, limits):
            if not name.endswith(FAULTS) and not (name.endswith(" is fenced") and not _is_gone(world, int(name[0]))):
                yield self.after(world, reached, limits)


def _is_gone(world: World, one: int) -> bool:
    """Whether the broker's process is gone, or has another broker epoch than in the metadata."""
    epoch, _ = world.newest.image.members[one - 1]
    return not world.broker(one).is_running or world.broker(one).life != epoch


def is_whole(world: World) -> bool:
    image = world.newest.image
    partition = image.partition
    if partition.leader == NO_LEADER or {*partition.isr} != {*range(1, len(world.brokers) + 1)}:
        return False
    leading = world.broker(partition.leader)
    leads = isinstance(leading.role, Leads) and leading.role.epoch == partition.leader_epoch
    is_known = partition.incarnation == incarnation(partition.leader, leading.life)
    return leads and is_known and all(one.log == leading.log and one.is_running for one in world.brokers)


def _waits_for_an_operator(world: World) -> bool:
    """Whether all brokers are back, and each replica that could be elected cleanly is suspect."""
    image = world.newest.image
    partition = image.partition
    marked = {suspect[0] for suspect in partition.suspect_replicas}
    are_back = all(state is BrokerState.SERVING for _, state in image.members)
    return are_back and partition.leader == NO_LEADER and {*partition.isr, *partition.elr} <= marked
