"""Search of all orders of events among brokers that replicate a partition, as often as limits allow.

The real machines decide: elections, ISR changes, the leader's count and the follower's actions. The model has the rest:
messages that come late, twice or never, writes with an unknown outcome, metadata that are learnt late, and disks that
lose unsynced records. The search tries all that the limits allow, however long the way, and recognizes worlds by a
fingerprint. And each world must become whole after the last fault (`recovery.py`).

`python -m kafkawire.tests.replication.model` prints the count of states, and the way to a wrong one.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from operator import le
from sys import intern
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerState
from coordinator.controller import elections
from coordinator.controller.isr_proposals import IsrChange, changed_by
from kafkawire.tests.replication import brokers
from kafkawire.tests.replication.recovery import STUCK, Recovery
from kafkawire.tests.replication.scenes import DEEP, QUICK, Scene
from kafkawire.tests.replication.world import (
    Follows,
    Leads,
    Limits,
    World,
    incarnation,
    initial_world,
    normal,
)
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coordinator.api import PartitionState
    from kafkawire.tests.replication.world import Broker, Image, Log, Write

Step = tuple[str, World]
Spent = tuple[int, int, int, int]  # used up parts of the limits


def steps(world: World, limits: Limits) -> Iterator[Step]:
    """All possible next steps."""
    for one, broker in enumerate(world.brokers, 1):
        if broker.is_running:
            yield from _of_a_broker(world, one, broker, limits)
    for message in world.messages:
        gone = world._replace(messages=tuple(one for one in world.messages if one is not message))
        late = "response to" if message.answer is not None else "fetch of"
        yield f"the late {late} {message.follower} comes", brokers.comes(gone, message, limits)
    for write in world.writes:
        yield from _settles(world, write)
    for name, reached in _metadata(world, limits):
        if reached.newest.image.partition.leader_epoch <= limits.elections:
            yield name, reached


def _of_a_broker(world: World, one: int, broker: Broker, limits: Limits) -> Iterator[Step]:
    if not isinstance(broker.role, Leads) or broker.known.version != world.newest.version:
        yield f"{one} learns", brokers.learns(world, one)
    if isinstance(broker.role, Leads):
        for name, reached in brokers.of_a_leader(world, one, broker.role, limits):
            yield from _with_proposal_written(world, name, reached, limits)
    elif isinstance(broker.role, Follows):
        yield from brokers.of_a_follower(world, one, broker.role, limits)
    if world.crashes < limits.crashes:
        yield from brokers.crashes(world, one, limits)


def _with_proposal_written(world: World, name: str, reached: World, limits: Limits) -> Iterator[Step]:
    """The proposal is carried out and answered at once; or its outcome is unknown, and it may be carried out later."""
    for write in reached.writes:
        if write not in world.writes:
            reached = judged(world, reached, limits)
            for result, settled in _settles(reached, write):
                yield f"{name}, {result}", settled
            if world.unknowns < limits.unknowns:
                yield f"{name}, to unknown outcome", reached._replace(unknowns=world.unknowns + 1)
            return
    yield name, reached


def _settles(world: World, write: Write) -> Iterator[Step]:
    """The write is done and its writer gets the reply; or it is done without a reply; or it is lost."""
    gone = world._replace(writes=tuple(one for one in world.writes if one is not write))
    done, broker = _carried_out(gone, write), world.broker(write.leader)
    if broker.is_running and broker.life == write.life:
        yield f"{write.leader} is answered", brokers.learns(done, write.leader)
    if world.unknowns:
        yield f"{write.leader}'s write is done", done
        yield f"{write.leader}'s write is lost", gone


def _carried_out(world: World, write: Write) -> World:
    """The world after the write, or the same world: a multi fails if there is a newer version, or its writer has
    registered again."""
    image = world.newest.image
    if write.version != world.newest.version:
        return world
    writer = image.infos[write.leader]
    if writer.incarnation != incarnation(write.leader, write.life):
        return world
    change = IsrChange(b"", 0, write.epoch, frozenset(write.in_sync), dict(write.added))
    partition = changed_by(image.partition, image.infos, change, writer, image.min_isr)
    return world.with_image(image._replace(partition=partition))


def _metadata(world: World, limits: Limits) -> Iterator[Step]:
    """Steps of controllers, and of brokers that return."""
    image = world.newest.image
    for one, (epoch, state) in enumerate(image.members, 1):
        if state is BrokerState.SERVING:
            fenced = _settled(image.with_member(one, epoch, BrokerState.FENCED))
            yield f"{one} is fenced", world.with_image(fenced)
        yield from _registrations(world, one, limits)
    preferred = elections.preferred(image.partition, image.electorate)
    if preferred != image.partition:
        yield "the preferred leads", world.with_image(image._replace(partition=preferred))
    if limits.lowers and image.min_isr > 1:
        cleared = image._replace(partition=elections.without_elr(image.partition))
        yield "fewer in sync are enough", world.with_image(cleared._replace(min_isr=image.min_isr - 1))
    if limits.is_unclean:
        yield from _unclean(world, image)


def _settled(image: Image) -> Image:
    return image._replace(partition=elections.settled(image.partition, image.electorate))


def _registrations(world: World, one: int, limits: Limits) -> Iterator[Step]:
    """A registration, after a crash or after the others have fenced the broker."""
    broker, (epoch, state) = world.broker(one), world.newest.image.members[one - 1]
    knows = state is BrokerState.FENCED and not isinstance(broker.role, Leads)
    if epoch >= limits.lives or (broker.is_running and not knows):
        return
    image = world.newest.image.with_member(one, epoch + 1, BrokerState.RECOVERING)
    if not broker.is_running and not limits.synced:
        end = (broker.log[-1][0] if broker.log else 0, len(broker.log))
        image = image._replace(partition=elections.with_suspect(image.partition, one, end, image.min_isr))
    image = _settled(_settled(image).with_member(one, epoch + 1, BrokerState.SERVING))
    back = brokers.started(broker) if not broker.is_running else broker._replace(life=epoch + 1, role=None)
    registered = world.with_broker(one, back).with_image(image)
    yield f"{one} registers", brokers.learns(registered, one)


def _unclean(world: World, image: Image) -> Iterator[Step]:
    """Unclean elections, which give up the records that the new leader lacks."""
    for name, elect in (("an unclean election", elections.unclean), ("all are back", elections.reconciled)):
        elected: PartitionState = elect(image.partition, image.electorate)
        if elected.unclean_since != image.partition.unclean_since:
            kept = _common(world.acked, world.broker(elected.leader).log)
            yield name, world.with_image(image._replace(partition=elected))._replace(acked=kept)


def _common(one: Log, other: Log) -> Log:
    both = 0
    while both < min(len(one), len(other)) and one[both] == other[both]:
        both += 1
    return one[:both]


def judged(before: World, world: World, limits: Limits) -> World:
    """The world with the acknowledged records by now, and with a violation if there is one."""
    acked, wrong, partition = world.acked, world.wrong, world.newest.image.partition
    for broker, earlier in zip(world.brokers, before.brokers, strict=True):
        role = broker.role
        if not isinstance(role, Leads) or role.epoch < partition.unclean_since:
            continue
        told = broker.log[: broker.high_watermark]
        if _common(acked, told) != min(acked, told, key=len):
            wrong = wrong or "two records at one offset below the high watermark"
        acked = max(acked, told, key=len)
        led_before = isinstance(earlier.role, Leads) and earlier.role.epoch == role.epoch
        if led_before and broker.high_watermark < earlier.high_watermark:
            wrong = wrong or "the high watermark goes back"
    led, leads = before.newest.image.partition, world.newest.image.partition
    if (led.leader, led.incarnation) != (leads.leader, leads.incarnation) and leads.leader_epoch <= led.leader_epoch:
        wrong = wrong or "two leaders in one epoch"
    if acked != world.acked:
        world = world._replace(acked=acked)
    wrong = wrong or _wrong(world, limits)
    return world if wrong is None else world._replace(wrong=wrong)


def _wrong(world: World, limits: Limits) -> str | None:
    partition = world.newest.image.partition
    marked = {suspect[0] for suspect in partition.suspect_replicas}
    for one, broker in enumerate(world.brokers, 1):
        if (
            partition.unclean_since == NO_LEADER
            and broker.log[: broker.high_watermark] != world.acked[: broker.high_watermark]
        ):
            return "a record below a high watermark that is not what was acknowledged"
        # A broker that has lost records of a topic without sync says so before it can be elected.
        is_possible = one in {*partition.isr, *partition.elr} - marked and (limits.synced or broker.is_running)
        if is_possible and broker.log[: broker.durable][: len(world.acked)] != world.acked:
            return "a possible leader lacks what was acknowledged"
    return None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The count of states, and the violation, if any, with the way to it."""

    states: int
    wrong: str | None = None
    way: tuple[str, ...] = ()
    depth: int = 0
    is_complete: bool = True


def walk(limits: Limits, step_names: Sequence[str]) -> World:
    """The world after these steps. Raises KeyError for an impossible step."""
    world = initial_world(limits)
    for one in range(1, limits.brokers + 1):
        world = brokers.learns(world, one)
    for name in step_names:
        world = _after(world, dict(steps(world, limits))[name], limits)
    return world


def _after(before: World, world: World, limits: Limits) -> World:
    """The world after a step, in its normal form. Writes that cannot take effect any more are dropped, because a newer
    version replaces theirs."""
    writes = tuple(one for one in world.writes if _carried_out(world, one) is not world)
    return judged(before, normal(world._replace(writes=writes), limits), limits)


class _Known:
    """The worlds that were reached, by fingerprint, and the way to each. A world with more unused limits includes all
    that follows from the same world with fewer."""

    def __init__(self, first: World) -> None:
        self._spent: dict[int, list[Spent]] = {}
        self._predecessors: dict[int, tuple[int, str] | None] = {}
        self.is_new(first)
        self._predecessors[hash(first)] = None

    def __len__(self) -> int:
        return len(self._predecessors)

    def is_new(self, world: World) -> bool:
        """Whether the world is new, or has more unused limits than the equal ones so far."""
        spent = world.appends, world.crashes, world.late, world.unknowns
        known = self._spent.setdefault(hash(world._replace(appends=0, crashes=0, late=0, unknowns=0)), [])
        if any(all(map(le, other, spent)) for other in known):
            return False
        known.append(spent)
        return True

    def note(self, world: World, before: World, step: str) -> None:
        self._predecessors[hash(world)] = hash(before), intern(step)

    def way_to(self, world: World) -> tuple[str, ...]:
        way, fingerprint = list[str](), hash(world)
        while (step := self._predecessors[fingerprint]) is not None:
            fingerprint, name = step
            way.append(name)
        return tuple(reversed(way))


def explore(
    scene: Scene, report: Callable[[str], None] | None = None, *, may_stay_broken: bool = False
) -> SearchResult:
    """Search all orders of events in a scene, short ways first."""
    limits, initial_steps, states_max = scene
    first = walk(limits, initial_steps)
    known, layer, depth = _Known(first), [first], 0
    recovery = Recovery(limits, steps, _after)
    while layer:
        following: list[World] = []
        for world in layer:
            if not may_stay_broken and recovery.is_stuck(world):
                return SearchResult(len(known), STUCK, known.way_to(world), depth)
            for name, next_world in steps(world, limits):
                reached = _after(world, next_world, limits)
                if not known.is_new(reached):
                    continue
                known.note(reached, world, name)
                if reached.wrong is not None:
                    return SearchResult(len(known), reached.wrong, known.way_to(reached), depth + 1)
                following.append(reached)
            if len(known) > states_max:
                return SearchResult(len(known), depth=depth, is_complete=False)
        layer, depth = following, depth + 1
        if report is not None:
            report(f"after {depth} steps: {len(known)} states, {len(layer)} new")
    return SearchResult(len(known), depth=depth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deep", action="store_true", help="all that the limits allow, for hours")
    parser.add_argument("--scene", action="append", help="name of a scene in scenes.py; all scenes by default")
    given = parser.parse_args()
    scenes, states = DEEP if given.deep else QUICK, 0
    for name in given.scene or scenes:
        outcome = explore(scenes[name], report=_print_line if given.deep else None)
        if outcome.wrong is not None:
            depth = " --deep" if given.deep else ""
            print(f"python -m kafkawire.tests.replication.model{depth} --scene '{name}': {outcome.wrong}")
            raise SystemExit(f"{outcome.wrong}: {', '.join(outcome.way)}")
        all_of_them = "all" if outcome.is_complete else "up to"
        print(f"{name}: {outcome.states} states, {all_of_them} {outcome.depth} steps", flush=True)
        states += outcome.states
    note_for_ledger(f"{states} states in {len(given.scene or scenes)} scenes, 0 wrong")


def _print_line(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
