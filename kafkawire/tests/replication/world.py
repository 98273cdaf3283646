"""The values of the model: brokers, messages under way between them, and the metadata. Worlds can be compared.

An image of the metadata is interned, so that worlds compare quickly. Its version only tells which of two images is
newer: worlds that differ in nothing else are equal.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.controller.elections import Electorate

Record = tuple[int, int]  # the epoch it was written in, and which one it is
Log = tuple[Record, ...]
Start = tuple[int, int]  # an epoch, and the offset it began at
Pairs = tuple[tuple[int, int], ...]

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.api import EpochEnd
    from engine.replication.exchange import FollowerFetch

NEVER = -(2**62)
LATER = 2**62


class Limits(NamedTuple):
    """The beginning of the search, the events that it tries, and how often. Any number of messages is lost.

    An empty `isr` means all replicas. In a topic that is not `synced` a power cut loses the last records;
    `keeps_high_watermark`: its checkpoint has the newest high watermark, else there is none. `is_stepwise`: followers
    sync later than they append. `is_unclean`: unclean elections are tried too; `lowers`: min.insync.replicas is
    lowered; `remembers`: the progress of followers in an earlier epoch makes a difference. `elections` is the last
    leader epoch.
    """

    brokers: int = 2
    leader: int = 1
    isr: tuple[int, ...] = ()
    min_isr: int = 1
    synced: bool = True
    keeps_high_watermark: bool = True
    is_stepwise: bool = False
    is_unclean: bool = False
    lowers: bool = False
    remembers: bool = False
    appends: int = 2
    elections: int = 2
    crashes: int = 2
    lives: int = 1
    late: int = 1
    unknowns: int = 1


class Image(NamedTuple):
    """The metadata. `members`: broker epoch and state, in the order of broker ids."""

    partition: PartitionState
    members: tuple[tuple[int, BrokerState], ...]
    min_isr: int

    @property
    def infos(self) -> Mapping[int, BrokerInfo]:
        return _infos(self.members)

    @property
    def electorate(self) -> Electorate:
        return Electorate(self.infos, self.min_isr)

    def with_member(self, broker: int, epoch: int, state: BrokerState) -> Image:
        members = (*self.members[: broker - 1], (epoch, state), *self.members[broker:])
        return self._replace(members=members)


@cache
def _infos(members: tuple[tuple[int, BrokerState], ...]) -> Mapping[int, BrokerInfo]:
    return {
        one: BrokerInfo(one, (), incarnation=incarnation(one, epoch), epoch=epoch, state=state)
        for one, (epoch, state) in enumerate(members, 1)
    }


def incarnation(broker: int, life: int) -> bytes:
    return bytes([broker, life]) + bytes(14)


_images: list[Image] = []
_numbers: dict[Image, int] = {}


def number_of(image: Image) -> int:
    """The number of an image; equal images have the same number."""
    if image not in _numbers:
        _numbers[image] = len(_images)
        _images.append(image)
    return _numbers[image]


class Known(NamedTuple):
    """An image, by its number, and its version of the metadata."""

    version: int
    number: int

    @property
    def image(self) -> Image:
        return _images[self.number]


class Leads(NamedTuple):
    """The state of a leader's machine. `seen`: id, end and epoch of each follower that has fetched; `proposed`:
    version, ISR, and the epochs of the added replicas."""

    epoch: int
    epoch_start: int
    seen: tuple[tuple[int, int, int], ...] = ()
    proposed: tuple[int, tuple[int, ...], Pairs] | None = None


class Follows(NamedTuple):
    """The state of a follower's machine between two fetches. `to_sync`: the leader's high watermark, until the records
    that came with it are durable; until then the follower does not fetch."""

    leader: int
    epoch: int
    unclean_since: int = -1
    to_sync: int | None = None


class Broker(NamedTuple):
    """A process and its disk. `known`: the metadata by which it leads; `starts`: its epoch history; `durable`: the
    count of synced records; `ends_of_others`: the progress of followers in an earlier epoch."""

    known: Known
    life: int = 0
    is_running: bool = True
    log: Log = ()
    durable: int = 0
    high_watermark: int = 0
    starts: tuple[Start, ...] = ()
    ends_of_others: tuple[tuple[int, int], ...] = ()
    role: Leads | Follows | None = None


NOTHING = Known(0, 0)


class Message(NamedTuple):
    """A Fetch under way to a leader, or the response under way back if `answer` is set: high watermark, divergence,
    records. The follower no longer waits for it."""

    follower: int
    life: int
    leader: int
    asked: FollowerFetch
    answer: tuple[int, EpochEnd | None, Log] | None = None


class Write(NamedTuple):
    """A proposal under way to the metadata store."""

    leader: int
    life: int
    epoch: int
    version: int
    in_sync: tuple[int, ...]
    added: Pairs


class World(NamedTuple):
    """The state of the whole model. `messages` and `writes`: late ones, which others overtake. `acked`: the records
    that were below the high watermark of a leader; `wrong`: a violation, or None."""

    newest: Known
    brokers: tuple[Broker, ...]
    messages: tuple[Message, ...] = ()
    writes: tuple[Write, ...] = ()
    acked: Log = ()
    appends: int = 0
    crashes: int = 0
    late: int = 0
    unknowns: int = 0
    wrong: str | None = None

    def broker(self, broker: int) -> Broker:
        return self.brokers[broker - 1]

    def with_broker(self, broker: int, changed: Broker) -> World:
        return self._replace(brokers=(*self.brokers[: broker - 1], changed, *self.brokers[broker:]))

    def with_image(self, image: Image) -> World:
        """The metadata's next version, or the same world if nothing changes."""
        number = number_of(image)
        if number == self.newest.number:
            return self
        return self._replace(newest=Known(self.newest.version + 1, number))


def initial_world(limits: Limits) -> World:
    """A world of serving brokers that know no metadata yet."""
    ids = tuple(range(1, limits.brokers + 1))
    leader, isr = limits.leader, limits.isr or ids
    partition = PartitionState(leader, 0, isr, ids, incarnation=incarnation(leader, 0))
    members = tuple((0, BrokerState.SERVING) for _ in ids)
    known = Known(0, number_of(Image(partition, members, limits.min_isr)))
    return World(known, tuple(Broker(known) for _ in ids))


def normal(world: World, limits: Limits) -> World:
    """The same world without irrelevant details: whether a version is the newest matters, its number does not; which
    records are equal matters, their numbers do not."""
    newest = world.newest
    writes = tuple(one._replace(version=int(one.version == newest.version)) for one in world.writes)
    brokers = tuple(_without_history(world, one, limits) for one in range(1, len(world.brokers) + 1))
    world = world._replace(newest=newest._replace(version=1), brokers=brokers, writes=writes)
    return _renumbered(world) if world.appends > 1 else world


def _without_history(world: World, one: int, limits: Limits) -> Broker:
    """The broker, with only the known metadata that affect a leader: ISR, serving brokers, and whether they are the
    newest."""
    broker, newest = world.broker(one), world.newest
    ends_of_others, role = broker.ends_of_others if limits.remembers else (), broker.role
    if not isinstance(role, Leads):
        is_gone = not broker.is_running and _is_gone(newest.image, one, limits)
        broker = broker._replace(log=(), durable=0, high_watermark=0, starts=()) if is_gone else broker
        return broker._replace(known=NOTHING, ends_of_others=ends_of_others)
    is_new = int(broker.known.version == newest.version)
    known = Known(is_new, newest.number if is_new else _as_led_by(broker.known.number))
    if role.proposed is not None:
        role = role._replace(proposed=(is_new, *role.proposed[1:]))
    return broker._replace(known=known, role=role, ends_of_others=ends_of_others)


def _is_gone(image: Image, one: int, limits: Limits) -> bool:
    """Whether the broker does not run, never comes back, and is in neither ISR nor ELR."""
    epoch, state = image.members[one - 1]
    listed = {*image.partition.isr, *image.partition.elr}
    return epoch >= limits.lives and state is BrokerState.FENCED and one not in listed


@cache
def _as_led_by(number: int) -> int:
    """The part of an image that affects a leader which has learnt nothing since."""
    image = _images[number]
    partition = PartitionState(NO_LEADER, 0, image.partition.isr, image.partition.replicas)
    return number_of(image._replace(partition=partition))


def _renumbered(world: World) -> World:
    logs = [*(one.log for one in world.brokers), world.acked]
    logs += [one.answer[2] for one in world.messages if one.answer is not None]
    used = sorted({record[1] for log in logs for record in log})
    if used == [*range(len(used))]:
        return world
    ranks = {number: rank for rank, number in enumerate(used)}

    def renumbered(log: Log) -> Log:
        return tuple((epoch, ranks[number]) for epoch, number in log)

    brokers = tuple(one._replace(log=renumbered(one.log)) for one in world.brokers)
    messages = tuple(
        one if one.answer is None else one._replace(answer=(*one.answer[:2], renumbered(one.answer[2])))
        for one in world.messages
    )
    return world._replace(brokers=brokers, messages=messages, acked=renumbered(world.acked))
