"""An exhaustive model of elections: every order of crashes, fencing, elections and ISR changes, up to a depth.

The real functions decide (`coordinator.controller.elections`); around them is as little of replication as shows whether
something was lost: logs of records, copied one at a time, and the records that were acknowledged to a client. All
brokers learn everything at once here; another model has late messages.

`election_search.py` explores it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.controller import elections
from coordinator.controller.elections import NO_LOG, Electorate
from coordinator.ports import ReplicaEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

Record = tuple[int, int]  # the epoch it was written in, and which one it is
Log = tuple[Record, ...]

REPLICAS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker: its state in the metadata, and its process and disk."""

    state: BrokerState = BrokerState.SERVING
    life: int = 0
    process: int = 1  # a life may be that of the process before, which has lost its session
    is_running: bool = True
    log: Log = ()
    has_log: bool = True
    is_clean: bool = True  # it stopped in order
    is_open: bool = True  # its log is; the metadata may say so later


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the model. If the topic is not `synced`, a crash loses the last record."""

    synced: bool = True
    min_isr: int = 2
    records_max: int = 2
    crashes_max: int = 3
    closings_max: int = 0  # how often a log is closed, or not opened, while its broker runs
    power_cuts_max: int = 0  # of all at once; a disk loses its last synced record, and disks are lost in no other way


@dataclass(frozen=True, slots=True)
class World:
    """The whole state. `acked`: the records that were acknowledged to a client with acks=all."""

    partition: PartitionState
    brokers: tuple[Broker, ...]
    min_isr: int
    acked: frozenset[Record] = frozenset()
    high_watermark: int = 0
    written: int = 0
    crashes: int = 0
    closings: int = 0
    power_cuts: int = 0
    rolled_back: int = NO_LEADER  # by a power cut

    def broker(self, broker_id: int) -> Broker:
        return self.brokers[broker_id - 1]

    def with_broker(self, broker_id: int, **changes: object) -> World:
        changed = replace(self.broker(broker_id), **changes)  # type: ignore[arg-type]
        return replace(self, brokers=tuple(changed if one == broker_id else self.broker(one) for one in REPLICAS))

    @property
    def electorate(self) -> Electorate:
        infos = {
            one: BrokerInfo(
                one,
                (),
                incarnation=_incarnation(one, broker.life),
                state=broker.state,
                process_epoch=broker.process,
            )
            for one, broker in zip(REPLICAS, self.brokers, strict=True)
        }
        answers = {
            one: ReplicaEnd(broker.log[-1][0] if broker.log else -1, len(broker.log), 0)
            for one, broker in zip(REPLICAS, self.brokers, strict=True)
            if broker.is_running and broker.is_open and broker.state is BrokerState.SERVING
        }
        return Electorate(infos, self.min_isr, answers=answers)

    @property
    def leader(self) -> int | None:
        """The leader that knows that it leads, and can be reached."""
        partition = self.partition
        if partition.leader == NO_LEADER or not self.broker(partition.leader).is_running:
            return None
        broker = self.broker(partition.leader)
        lives = partition.incarnation == _incarnation(partition.leader, broker.life)
        return partition.leader if lives and broker.is_open else None


def _incarnation(broker_id: int, life: int) -> bytes:
    return bytes([broker_id, life]) + bytes(14)


def initial_world(limits: Limits) -> World:
    """Three brokers that serve, all in sync."""
    processes = tuple((one, 1) for one in REPLICAS)
    partition = PartitionState(1, 0, REPLICAS, REPLICAS, incarnation=_incarnation(1, 0), processes=processes)
    return World(partition, tuple(Broker() for _ in REPLICAS), limits.min_isr)


Step = tuple[str, World]


def steps(world: World, limits: Limits) -> Iterator[Step]:
    """The possible next steps."""
    yield from _of_the_leader(world, limits)
    for one in REPLICAS:
        yield from _of_a_broker(world, one, limits)
    if world.power_cuts < limits.power_cuts_max:
        yield from _power_cuts(world)
    yield from _by_order(world)


def _power_cuts(world: World) -> Iterator[Step]:
    """All crash at once, and are fenced at once. The disk of one member of an ISR with several loses its last
    record."""
    for one in REPLICAS:
        if not world.broker(one).log or one not in world.partition.isr or len(world.partition.isr) == 1:
            continue  # a replica that is alone in the ISR, or eligible, waits for no other
        cut = replace(world, power_cuts=world.power_cuts + 1, rolled_back=one)
        for each in REPLICAS:
            cut = cut.with_broker(each, state=BrokerState.FENCED, is_running=False, is_clean=False)
        cut = cut.with_broker(one, log=world.broker(one).log[:-1])
        yield f"all lose their power, and {one} what came last", _settled(cut)


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
        if one != leader and follower.is_running and follower.is_open:
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
        serves = broker.is_running and broker.state is BrokerState.SERVING and one not in partition.offline
        if one not in partition.isr and serves and is_near:
            entered = _with_isr(world, {*partition.isr, one})
            known = elections.with_processes(entered.partition, world.electorate.brokers, {one})
            yield f"{one} has caught up", replace(entered, partition=known)


def _with_isr(world: World, isr: set[int]) -> World:
    return replace(world, partition=elections.with_isr(world.partition, isr, world.min_isr))


def _copied(follower: Log, leader: Log) -> Log:
    """The follower's log, truncated to the common part, with one more record of the leader."""
    both = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(follower, leader, strict=False)))
    return leader[: both + 1]


def _of_a_broker(world: World, one: int, limits: Limits) -> Iterator[Step]:
    broker = world.broker(one)
    if broker.is_running and world.crashes < limits.crashes_max:
        crashed = replace(world, crashes=world.crashes + 1)
        yield f"{one} crashes", crashed.with_broker(one, is_running=False, is_clean=False)
        if broker.has_log and not limits.power_cuts_max:
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
    yield from _of_its_log(world, one, limits)
    yield from _of_its_start(world, one, limits)


def _of_its_log(world: World, one: int, limits: Limits) -> Iterator[Step]:
    """Close the log, tell the metadata, and open it again: never before that, and not as the leader of an epoch."""
    broker, partition = world.broker(one), world.partition
    if not broker.is_running:
        return
    if broker.is_open and broker.has_log and world.closings < limits.closings_max:
        closed = replace(world, closings=world.closings + 1)
        yield f"the log of {one} is closed", closed.with_broker(one, is_open=False)
    registered = broker.state is not BrokerState.FENCED
    if not broker.is_open and registered and one not in partition.offline:
        offline = replace(world, partition=elections.not_serving(partition, one, world.electorate))
        yield f"{one} does not serve", _settled(offline)
    if not broker.is_open and registered and one in partition.offline and partition.leader != one:
        opened = replace(world.with_broker(one, is_open=True), partition=elections.serving(partition, one))
        yield f"{one} serves again", _settled(opened)


def _of_its_start(world: World, one: int, limits: Limits) -> Iterator[Step]:
    broker = world.broker(one)
    if not broker.is_running or broker.state is BrokerState.FENCED:
        is_open = broker.is_open or not broker.is_running
        registered = world.with_broker(
            one,
            life=broker.life + 1,
            process=broker.process + (not broker.is_running),
            state=BrokerState.RECOVERING,
            is_running=True,
            is_open=is_open,
        )
        if is_open:
            registered = replace(registered, partition=elections.serving(registered.partition, one))
        if not broker.is_running and not (broker.has_log and (limits.synced or broker.is_clean)):
            end = (broker.log[-1][0] if broker.log else 0, len(broker.log)) if broker.has_log else NO_LOG
            reported = elections.with_suspect(registered.partition, one, end, world.min_isr)
            registered = replace(registered, partition=reported)
        yield f"{one} registers", _settled(registered.with_broker(one, is_clean=True))
    if broker.state is BrokerState.RECOVERING and broker.is_running:
        yield f"{one} serves", _settled(world.with_broker(one, state=BrokerState.SERVING, has_log=True))


def _settled(world: World) -> World:
    return replace(world, partition=elections.settled(world.partition, world.electorate))


def _by_order(world: World) -> Iterator[Step]:
    partition, electorate = world.partition, world.electorate
    if awaited := elections.awaited_members(partition, electorate):
        over = elections.settled(partition, replace(electorate, is_over=True))
        if world.rolled_back not in awaited or {*awaited} & {*electorate.answers} - {world.rolled_back}:
            yield "the wait is over", replace(world, partition=over)
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
    """Acknowledge as soon as possible: the high watermark is the end of the common part of the whole ISR."""
    new_epoch = before.partition.leader_epoch != world.partition.leader_epoch
    high_watermark = 0 if new_epoch else world.high_watermark
    leader = world.leader
    if leader is not None and len(world.partition.isr) >= min(world.min_isr, len(REPLICAS)):
        log = world.broker(leader).log
        common_ends = (_common(world.broker(one).log, log) for one in world.partition.isr)
        high_watermark = max(high_watermark, min(common_ends))
        world = replace(world, acked=world.acked | frozenset(log[:high_watermark]))
    return replace(world, high_watermark=high_watermark)


def _common(one: Log, other: Log) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def wrong(before: World, world: World) -> str | None:
    """A short name of the first broken invariant, or None."""
    old, new = before.partition, world.partition
    led = (old.leader, old.incarnation), (new.leader, new.incarnation)
    leader = world.leader
    checks = {
        "the ISR is empty": not new.isr,
        "the leader is not in the ISR": new.leader not in (*new.isr, NO_LEADER),
        "a replica is in the ISR and in the ELR": bool({*new.isr} & {*new.elr}),
        "a suspect replica is in the ELR": bool({*new.elr} & {suspect[0] for suspect in new.suspect_replicas}),
        "a replica that does not serve is elected": led[0] != led[1] and new.leader in new.offline,
        "an epoch with two leaders": led[0] != led[1] and new.leader_epoch <= old.leader_epoch,
        "an epoch for nothing": led[0] == led[1] and new.leader_epoch != old.leader_epoch,
        "the leader lacks what was acknowledged": leader is not None and not world.acked <= {*world.broker(leader).log},
    }
    return next((name for name, is_so in checks.items() if is_so), None)


def normal(world: World) -> World:
    """The same world with the smallest numbers: it does not matter which epochs and how many registrations there
    were."""
    partition = world.partition
    used = {epoch for broker in world.brokers for epoch, _ in broker.log} | {epoch for epoch, _ in world.acked}
    used |= {epoch for _, epoch, _ in partition.suspect_replicas}
    ranks = {epoch: rank for rank, epoch in enumerate(sorted(used | {-1, partition.leader_epoch}), -1)}
    leader = partition.leader
    stands = leader != NO_LEADER and partition.incarnation == _incarnation(leader, world.broker(leader).life)
    brokers = tuple(
        replace(broker, life=int(one == leader and not stands), process=1, log=_ranked(broker.log, ranks))
        for one, broker in zip(REPLICAS, world.brokers, strict=True)
    )
    renumbered = replace(
        partition,
        processes=tuple((one, int(known == world.broker(one).process)) for one, known in partition.processes),
        leader_epoch=ranks[partition.leader_epoch],
        incarnation=bytes(16) if leader == NO_LEADER else _incarnation(leader, 0),
        suspect_replicas=tuple((one, ranks[epoch], end) for one, epoch, end in partition.suspect_replicas),
        unclean_since=NO_LEADER,
    )
    acked = frozenset(_ranked(tuple(world.acked), ranks))
    return replace(world, partition=renumbered, brokers=brokers, acked=acked)


def _ranked(log: Log, ranks: dict[int, int]) -> Log:
    return tuple((ranks[epoch], number) for epoch, number in log)
