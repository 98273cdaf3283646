"""An exhaustive model of elections: every order of crashes, fencing, elections and ISR changes, up to a depth.

The real functions decide (`coordinator.cluster.elections`); around them is as little of replication as says whether
something was lost: logs of records, copied one at a time, and what a client was told to be safe. Everybody learns
everything at once here; what late messages do is another model's subject.

`python -m coordinator.tests.election_model --depth 9` tells how many states it saw, and the way to one that is wrong.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.cluster import elections
from coordinator.cluster.elections import NO_LOG, Electorate
from engine.tests.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Record = tuple[int, int]  # the epoch it was written in, and which one it is
Log = tuple[Record, ...]

REPLICAS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker: what the metadata says of it, and its process and disk."""

    state: BrokerState = BrokerState.SERVING
    life: int = 0
    is_running: bool = True
    log: Log = ()
    has_log: bool = True
    is_clean: bool = True  # it stopped in order


@dataclass(frozen=True, slots=True)
class Limits:
    """What the model tries. Of a topic that is not `synced` a crash loses what was written last."""

    synced: bool = True
    min_isr: int = 2
    records_max: int = 2
    crashes_max: int = 3


@dataclass(frozen=True, slots=True)
class World:
    """All there is. `acked` is what a client with acks=all was told to be safe."""

    partition: PartitionState
    brokers: tuple[Broker, ...]
    min_isr: int
    acked: frozenset[Record] = frozenset()
    high_watermark: int = 0
    written: int = 0
    crashes: int = 0

    def broker(self, broker_id: int) -> Broker:
        return self.brokers[broker_id - 1]

    def with_broker(self, broker_id: int, **changes: object) -> World:
        changed = replace(self.broker(broker_id), **changes)  # type: ignore[arg-type]
        return replace(self, brokers=tuple(changed if one == broker_id else self.broker(one) for one in REPLICAS))

    @property
    def electorate(self) -> Electorate:
        infos = {
            one: BrokerInfo(one, (), incarnation=_incarnation(one, broker.life), state=broker.state)
            for one, broker in zip(REPLICAS, self.brokers, strict=True)
        }
        return Electorate(infos, self.min_isr)

    @property
    def leader(self) -> int | None:
        """Who leads, knows it, and can be talked to."""
        partition = self.partition
        if partition.leader == NO_LEADER or not self.broker(partition.leader).is_running:
            return None
        lives = partition.incarnation == _incarnation(partition.leader, self.broker(partition.leader).life)
        return partition.leader if lives else None


def _incarnation(broker_id: int, life: int) -> bytes:
    return bytes([broker_id, life]) + bytes(14)


def beginning(limits: Limits) -> World:
    """Three brokers that serve, all in sync."""
    partition = PartitionState(1, 0, REPLICAS, REPLICAS, incarnation=_incarnation(1, 0))
    return World(partition, tuple(Broker() for _ in REPLICAS), limits.min_isr)


Step = tuple[str, World]


def steps(world: World, limits: Limits) -> Iterator[Step]:
    """What may happen next."""
    yield from _of_the_leader(world, limits)
    for one in REPLICAS:
        yield from _of_a_broker(world, one, limits)
    yield from _by_order(world)


def _of_the_leader(world: World, limits: Limits) -> Iterator[Step]:
    leader = world.leader
    if leader is None:
        return
    partition, log = world.partition, world.broker(leader).log
    if world.written < limits.records_max:
        record = (partition.leader_epoch, world.written)
        yield f"{leader} writes", replace(world.with_broker(leader, log=(*log, record)), written=world.written + 1)
    for one in REPLICAS:
        follower = world.broker(one)
        if one != leader and follower.is_running:
            copied = _copied(follower.log, log)
            if copied != follower.log:
                yield f"{one} copies", world.with_broker(one, log=copied)
    if world.electorate.is_up(leader):
        yield from _isr_changes(world, leader, log)


def _isr_changes(world: World, leader: int, log: Log) -> Iterator[Step]:
    partition = world.partition
    epoch_start = sum(epoch < partition.leader_epoch for epoch, _ in log)
    for one in REPLICAS:
        broker = world.broker(one)
        if one in partition.isr and one != leader:
            yield f"{one} is late", _with_isr(world, set(partition.isr) - {one})
        is_prefix = broker.log == log[: len(broker.log)]
        is_near = is_prefix and len(broker.log) >= max(epoch_start, world.high_watermark)
        if one not in partition.isr and broker.is_running and broker.state is BrokerState.SERVING and is_near:
            yield f"{one} has caught up", _with_isr(world, {*partition.isr, one})


def _with_isr(world: World, isr: set[int]) -> World:
    return replace(world, partition=elections.with_isr(world.partition, isr, world.min_isr))


def _copied(follower: Log, leader: Log) -> Log:
    """Cut to what both have, and one more."""
    both = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(follower, leader, strict=False)))
    return leader[: both + 1]


def _of_a_broker(world: World, one: int, limits: Limits) -> Iterator[Step]:
    broker = world.broker(one)
    if broker.is_running and world.crashes < limits.crashes_max:
        crashed = replace(world, crashes=world.crashes + 1)
        yield f"{one} crashes", crashed.with_broker(one, is_running=False, is_clean=False)
        if broker.has_log:
            yield (
                f"{one} loses its disk",
                crashed.with_broker(one, is_running=False, is_clean=False, log=(), has_log=False),
            )
        if broker.log and not limits.synced:
            lost = crashed.with_broker(one, is_running=False, is_clean=False, log=broker.log[:-1])
            yield f"{one} crashes and loses what came last", lost
    if broker.state in elections.UP:
        yield f"{one} is fenced", _settled(world.with_broker(one, state=BrokerState.FENCED))
    if broker.state is BrokerState.SERVING and broker.is_running:
        yield f"{one} is leaving", _settled(world.with_broker(one, state=BrokerState.LEAVING))
    if broker.state is BrokerState.LEAVING and broker.is_running:
        stopped = world.with_broker(one, state=BrokerState.FENCED, is_running=False, is_clean=True)
        yield f"{one} has stopped", _settled(stopped)
    yield from _of_its_start(world, one, limits)


def _of_its_start(world: World, one: int, limits: Limits) -> Iterator[Step]:
    broker = world.broker(one)
    if not broker.is_running or broker.state is BrokerState.FENCED:
        registered = world.with_broker(one, life=broker.life + 1, state=BrokerState.RECOVERING, is_running=True)
        if not broker.is_running and not (broker.has_log and (limits.synced or broker.is_clean)):
            end = (broker.log[-1][0] if broker.log else 0, len(broker.log)) if broker.has_log else NO_LOG
            marked = elections.repudiated(registered.partition, one, end, world.min_isr)
            registered = replace(registered, partition=marked)
        yield f"{one} registers", _settled(registered.with_broker(one, is_clean=True))
    if broker.state is BrokerState.RECOVERING and broker.is_running:
        yield f"{one} serves", _settled(world.with_broker(one, state=BrokerState.SERVING, has_log=True))


def _settled(world: World) -> World:
    return replace(world, partition=elections.settled(world.partition, world.electorate))


def _by_order(world: World) -> Iterator[Step]:
    partition, electorate = world.partition, world.electorate
    yield "the preferred leads", replace(world, partition=elections.preferred(partition, electorate))
    if world.min_isr > 1:
        lowered = replace(world, partition=elections.without_elr(partition), min_isr=world.min_isr - 1)
        yield "fewer in sync are enough", lowered
    for name, elect in (("an unclean election", elections.unclean), ("all are back", elections.reconciled)):
        elected = elect(partition, electorate)
        if elected != elections.settled(partition, electorate):
            log = world.broker(elected.leader).log if elected.leader != NO_LEADER else ()
            yield name, replace(world, partition=elected, acked=world.acked & frozenset(log))


def acknowledged(before: World, world: World) -> World:
    """What is acknowledged at once, as soon as it may be: the high watermark is what the whole ISR has."""
    new_epoch = before.partition.leader_epoch != world.partition.leader_epoch
    high_watermark = 0 if new_epoch else world.high_watermark
    leader = world.leader
    if leader is not None and len(world.partition.isr) >= min(world.min_isr, len(REPLICAS)):
        log = world.broker(leader).log
        of_all = (_common(world.broker(one).log, log) for one in world.partition.isr)
        high_watermark = max(high_watermark, min(of_all))
        world = replace(world, acked=world.acked | frozenset(log[:high_watermark]))
    return replace(world, high_watermark=high_watermark)


def _common(one: Log, other: Log) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def wrong(before: World, world: World) -> str | None:
    """What must never be, said in a few words."""
    old, new = before.partition, world.partition
    led = (old.leader, old.incarnation), (new.leader, new.incarnation)
    leader = world.leader
    checks = {
        "the ISR is empty": not new.isr,
        "the leader is not in the ISR": new.leader not in (*new.isr, NO_LEADER),
        "somebody is in the ISR and in the ELR": bool({*new.isr} & {*new.elr}),
        "somebody is in the ELR with a mark": bool({*new.elr} & {mark[0] for mark in new.marks}),
        "an epoch with two leaders": led[0] != led[1] and new.leader_epoch <= old.leader_epoch,
        "an epoch for nothing": led[0] == led[1] and new.leader_epoch != old.leader_epoch,
        "the leader lacks what was acknowledged": leader is not None and not world.acked <= {*world.broker(leader).log},
    }
    return next((name for name, is_so in checks.items() if is_so), None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many states there were; the way to the first one that is wrong, and what is wrong there."""

    states: int
    wrong: str | None = None
    way: tuple[str, ...] = ()


def explore(limits: Limits, depth: int, possible: Callable[[World], Iterator[Step]] | None = None) -> Outcome:
    """Every way of at most `depth` steps, the short ones first."""
    first = beginning(limits)
    possible = possible or partial(steps, limits=limits)
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    layer = [first]
    for _ in range(depth):
        following: list[World] = []
        for world in layer:
            for name, next_world in possible(world):
                reached = acknowledged(world, next_world)
                reason, seen = wrong(world, reached), _normal(reached)
                if reason is not None:
                    return Outcome(len(came_from), reason, (*_way_to(world, came_from), name))
                if seen not in came_from:
                    came_from[seen] = (world, name)
                    following.append(seen)
        layer = following
    return Outcome(len(came_from))


def _normal(world: World) -> World:
    """The same world with the smallest numbers: which epochs there were in between, and how many lives, is all one."""
    partition = world.partition
    used = {epoch for broker in world.brokers for epoch, _ in broker.log} | {epoch for epoch, _ in world.acked}
    used |= {epoch for _, epoch, _ in partition.marks}
    ranks = {epoch: rank for rank, epoch in enumerate(sorted(used | {-1, partition.leader_epoch}), -1)}
    leader = partition.leader
    stands = leader != NO_LEADER and partition.incarnation == _incarnation(leader, world.broker(leader).life)
    brokers = tuple(
        replace(broker, life=int(one == leader and not stands), log=_ranked(broker.log, ranks))
        for one, broker in zip(REPLICAS, world.brokers, strict=True)
    )
    renumbered = replace(
        partition,
        leader_epoch=ranks[partition.leader_epoch],
        incarnation=bytes(16) if leader == NO_LEADER else _incarnation(leader, 0),
        marks=tuple((one, ranks[epoch], end) for one, epoch, end in partition.marks),
        unclean_since=NO_LEADER,
    )
    acked = frozenset(_ranked(tuple(world.acked), ranks))
    return replace(world, partition=renumbered, brokers=brokers, acked=acked)


def _ranked(log: Log, ranks: dict[int, int]) -> Log:
    return tuple((ranks[epoch], number) for epoch, number in log)


def _way_to(world: World, came_from: dict[World, tuple[World, str] | None]) -> tuple[str, ...]:
    way: list[str] = []
    while (step := came_from[world]) is not None:
        world, name = step
        way.append(name)
    return tuple(reversed(way))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=9)
    depth, states = parser.parse_args().depth, 0
    for synced in (True, False):
        for min_isr in (1, 2, 3):
            outcome = explore(Limits(synced=synced, min_isr=min_isr), depth)
            kind = "synced" if synced else "not synced"
            print(f"{kind}, min.insync.replicas={min_isr}, depth {depth}: {outcome.states} states", flush=True)
            states += outcome.states
            if outcome.wrong is not None:
                raise SystemExit(f"{outcome.wrong}: {', '.join(outcome.way)}")
    note_for_ledger(f"{states} states of six kinds of topics, all orders of {depth} steps, 0 wrong")


if __name__ == "__main__":
    main()
