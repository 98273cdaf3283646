"""The steps of brokers in the model: learn metadata, write, fetch, answer, sync, crash and restart."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER
from engine.errors import EngineError, NotLeaderOrFollower
from engine.replication.exchange import LeaderReply
from engine.replication.fetch_state import Append, AskEnds, Fail, FetchState, Restart, Truncate
from engine.replication.replicas import Replicas
from kafkawire.tests.replication.machines import (
    LAG_MAX_MS,
    NOW_MS,
    Disk,
    as_rows,
    committed,
    following,
    leading,
    led,
)
from kafkawire.tests.replication.world import NOTHING, Broker, Follows, Leads, Message, Write, incarnation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.replication.fetch_state import Action
    from kafkawire.tests.replication.world import Limits, Log, World


def learns(world: World, one: int) -> World:
    """The broker learns the newest metadata at once. Other sequences have it learn states in between."""
    broker = world.broker(one)._replace(known=world.newest)
    partition, role, disk = world.newest.image.partition, broker.role, Disk(broker)
    epoch = partition.leader_epoch
    if partition.leader == one and partition.incarnation == incarnation(one, broker.life):
        if isinstance(role, Leads) and role.epoch == epoch:
            replicas = leading(world.broker(one), one, role, disk)
            replicas.learn(committed(world.newest), NOW_MS)
        else:
            disk.epochs.note(epoch, len(disk.records))
            replicas = Replicas(one, epoch, disk.progress, committed(world.newest), NOW_MS, LAG_MAX_MS)
        return world.with_broker(one, disk.back(broker, led(replicas)))
    if partition.leader in (NO_LEADER, one):
        return world.with_broker(one, broker._replace(role=None))
    if isinstance(role, Follows) and role.epoch == epoch:
        return world.with_broker(one, broker)
    FetchState(epoch, disk.state, partition.unclean_since)
    disk.progress.begin_to_follow()
    follows = Follows(partition.leader, epoch, partition.unclean_since)
    return world.with_broker(one, disk.back(broker, follows))


# A leader


def of_a_leader(world: World, one: int, role: Leads, limits: Limits) -> Iterator[tuple[str, World]]:
    broker = world.broker(one)
    if world.appends < limits.appends:
        disk = Disk(broker)
        replicas = leading(broker, one, role, disk)
        disk.append([(role.epoch, world.appends)])
        if not limits.synced:
            disk.sync()
        changed = world.with_broker(one, disk.back(broker, led(replicas)))
        yield f"{one} writes", changed._replace(appends=world.appends + 1)
    if broker.durable < len(broker.log):
        disk = Disk(broker)
        replicas = leading(broker, one, role, disk)
        disk.sync()
        yield f"{one} syncs", world.with_broker(one, disk.back(broker, led(replicas)))
    yield from _proposals(world, one, role)


def _proposals(world: World, one: int, role: Leads) -> Iterator[tuple[str, World]]:
    broker = world.broker(one)
    for late in _late(one, broker, role):
        names = " and ".join(map(str, sorted(late)))
        yield f"{one} finds {names} late", _proposes(world, one, role, late)
    if role.proposed is None:
        yield f"{one} proposes", _proposes(world, one, role)
        return
    yield f"{one} is answered by a deposed server", _sees_the_same(world, one, role)
    if all((write.leader, write.life) != (one, broker.life) for write in world.writes):
        yield f"{one} proposes again", _proposes(world, one, role)


def _late(one: int, broker: Broker, role: Leads) -> Iterator[frozenset[int]]:
    """Sets of replicas that may be late, because the model has no clock: replicas that lack records, in the ISR or
    about to join it, and members that have not fetched. Lateness lasts for one step, and may be chosen again in the
    next."""
    ends = {other: end for other, end, _ in role.seen}
    behind = {other for other, end in ends.items() if end < len(broker.log)}
    silent = {*broker.known.image.partition.isr} - {one} - ends.keys()
    for count in range(1, len(behind | silent) + 1):
        yield from map(frozenset, combinations(sorted(behind | silent), count))


def _proposes(world: World, one: int, role: Leads, late: frozenset[int] = frozenset()) -> World:
    """The leader proposes an ISR, or counts an earlier proposal again. It does not wait for late replicas that must not
    join the ISR."""
    broker = world.broker(one)
    disk = Disk(broker)
    replicas = leading(broker, one, role, disk, late)
    may_join = {*_may_join(broker, role, disk.progress.high_watermark.offset)} - late
    proposal = None if late and role.proposed is not None else replicas.propose(NOW_MS)
    world = world.with_broker(one, disk.back(broker, led(replicas)))
    added = frozenset[int]() if proposal is None else proposal.added.keys()
    if role.proposed is None and (added & late or may_join - added):  # other additions may lose records
        return world._replace(wrong="a late follower is admitted, or one is not that RULES K17 admits")
    if proposal is None:
        return world
    write = Write(one, broker.life, role.epoch, *as_rows(proposal))
    return world._replace(writes=tuple(sorted({*world.writes, write})))


def _may_join(broker: Broker, role: Leads, high_watermark: int) -> Iterator[int]:
    """Followers that may join the ISR by RULES K17, unless they are late."""
    told = committed(broker.known)
    for other, end, life in role.seen:
        is_outside = other in told.replicas - told.in_sync and other in told.serving
        if is_outside and life == told.broker_epochs[other] and end >= max(high_watermark, role.epoch_start):
            yield other


def _sees_the_same(world: World, one: int, role: Leads) -> World:
    """The leader learns the same metadata again, from a server that does not know the newer ones."""
    broker = world.broker(one)
    disk = Disk(broker)
    replicas = leading(broker, one, role, disk)
    replicas.learn(committed(broker.known), NOW_MS)
    return world.with_broker(one, disk.back(broker, led(replicas)))


def receives_fetch(world: World, message: Message) -> tuple[World, LeaderReply, Log]:
    """A Fetch arrives at its leader, which may lead no more. Return the answer and records."""
    leader, asked = world.broker(message.leader), message.asked
    if not isinstance(leader.role, Leads):
        return world, LeaderReply(error=NotLeaderOrFollower()), ()
    disk = Disk(leader)
    replicas = leading(leader, message.leader, leader.role, disk)
    try:
        result = replicas.fetched(message.follower, message.life, asked, disk.state, NOW_MS)
    except EngineError as error:
        return world, LeaderReply(error=error), ()
    world = world.with_broker(message.leader, disk.back(leader, led(replicas)))
    records = () if result.diverging is not None else tuple(disk.records[asked.offset :])
    return world, LeaderReply(disk.progress.high_watermark.offset, 0, result.diverging), records


# A follower


def of_a_follower(world: World, one: int, role: Follows, limits: Limits) -> Iterator[tuple[str, World]]:
    """Steps of a follower. A Fetch and its response are one step, unless the follower changes in between: steps of
    others in between make no difference to steps before or after. Lost messages may arrive late."""
    broker = world.broker(one)
    asked = following(role).ask(Disk(broker).state)
    if asked is not None and world.broker(role.leader).is_running:
        message = Message(one, broker.life, role.leader, asked)
        after, answer, records = receives_fetch(world, message)
        yield f"{one} fetches", _answers(after, answer, records, message, limits)
        yield f"the response to {one} is lost", after
        if world.late < limits.late:
            late = world._replace(late=world.late + 1)
            yield f"{one}'s fetch is late", late._replace(messages=_with(world.messages, message))
            if answer.error is None:
                response = message._replace(answer=(answer.high_watermark, answer.diverging, records))
                late = after._replace(late=world.late + 1)
                yield f"the response to {one} is late", late._replace(messages=_with(world.messages, response))
    if broker.durable < len(broker.log):
        yield f"{one} syncs", _syncs(world, one, role)


def comes(world: World, message: Message, limits: Limits) -> World:
    """A late message arrives. A response counts only if the follower has asked the same again."""
    if message.answer is None:
        return receives_fetch(world, message)[0]
    high_watermark, diverging, records = message.answer
    return _answers(world, LeaderReply(high_watermark, 0, diverging), records, message, limits)


def _with(messages: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    return tuple(sorted({*messages, message}, key=repr))


def _syncs(world: World, one: int, role: Follows) -> World:
    broker, disk = world.broker(one), Disk(world.broker(one))
    disk.progress.begin_to_follow()
    disk.sync()
    if role.to_sync is not None:
        disk.progress.follow(role.to_sync)
    return world.with_broker(one, disk.back(broker, role._replace(to_sync=None)))


def _answers(world: World, answer: LeaderReply, records: Log, message: Message, limits: Limits) -> World:
    follower = world.broker(message.follower)
    role = follower.role
    if not isinstance(role, Follows) or follower.life != message.life:
        return world
    disk, machine = Disk(follower), following(role)
    disk.progress.begin_to_follow()
    machine.ask(disk.state)
    action = machine.answered(message.asked, answer, disk.state)
    if isinstance(action, AskEnds):
        action = machine.ends_received(0, len(world.broker(message.leader).log), disk.state)
    if action is None:
        return world
    wrong = _carry_out(action, disk, records)
    if isinstance(action, Append) and records and limits.is_stepwise:
        role = role._replace(to_sync=action.high_watermark)
    elif isinstance(action, Append):
        disk.sync()
        disk.progress.follow(action.high_watermark)
    world = world.with_broker(message.follower, disk.back(follower, role))
    return world._replace(wrong=wrong or world.wrong)


def _carry_out(action: Action, disk: Disk, records: Log) -> str | None:
    """Carry out a follower's action. Return the violation, or None."""
    if isinstance(action, Fail):
        return f"a follower gives up: {action.reason}"
    if isinstance(action, Append):
        return disk.append(records)
    if isinstance(action, Truncate):
        disk.cut(action.offset)
    assert not isinstance(action, Restart)
    return None


# A crash


def crashes(world: World, one: int, limits: Limits) -> Iterator[tuple[str, World]]:
    broker = world.broker(one)
    least = broker.durable if limits.synced else max(0, len(broker.log) - 1)
    for end in sorted({least, len(broker.log)}):
        high_watermark = min(broker.high_watermark, end) if limits.keeps_high_watermark else 0
        left = Broker(
            NOTHING, broker.life, is_running=False, log=broker.log[:end], durable=end, high_watermark=high_watermark
        )
        messages = tuple(one_of for one_of in world.messages if one_of.answer is None or one_of.follower != one)
        name = f"{one} crashes" + (" and loses what came last" if end < len(broker.log) else "")
        yield name, world.with_broker(one, left)._replace(messages=messages, crashes=world.crashes + 1)


def started(broker: Broker) -> Broker:
    """The broker after a restart: it has read its log."""
    starts: dict[int, int] = {}
    for offset, (epoch, _) in enumerate(broker.log):
        starts.setdefault(epoch, offset)
    return broker._replace(is_running=True, life=broker.life + 1, starts=tuple(starts.items()), role=None)
