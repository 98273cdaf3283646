"""What there is in the model: brokers, what is under way between them, and the metadata. Values, that can be compared.

An image of the metadata is interned, so that worlds compare quickly; its version says which of two is newer, and only
that: worlds that differ in nothing else are one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from coordinator.api import NO_LEADER, BrokerInfo, BrokerState, PartitionState
from coordinator.cluster.elections import Electorate

Record = tuple[int, int]  # the epoch it was written in, and which one it is
Log = tuple[Record, ...]
Start = tuple[int, int]  # an epoch, and the offset it began at
Pairs = tuple[tuple[int, int], ...]

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.api import EpochEnd
    from engine.replication.exchange import Asked

NEVER = -(2**62)
LATER = 2**62


class Limits(NamedTuple):
    """What the model begins with and tries, and how often. Any number of messages is lost.

    No `isr` is one of all. Of a topic that is not `synced` a power cut takes what was written last;
    `keeps_high_watermark`: its checkpoint is as new as can be, or there is none. `is_stepwise`: followers sync later
    than they append. `is_unclean`: elections that may lose something are tried too; `lowers`: min.insync.replicas is
    made smaller; `remembers`: what followers told in an earlier epoch makes a difference. `elections` is the last
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
    """What the metadata says: `members` in the order of their ids, with broker epoch and state."""

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
    """Images that are equal have one number."""
    if image not in _numbers:
        _numbers[image] = len(_images)
        _images.append(image)
    return _numbers[image]


class Known(NamedTuple):
    """An image, by its number, and which version of the metadata it is."""

    version: int
    number: int

    @property
    def image(self) -> Image:
        return _images[self.number]


class Leads(NamedTuple):
    """What a leader's machine holds. `seen`: of each follower that has fetched its end, and its life; `proposed`:
    version, ISR, who is added in which life."""

    epoch: int
    epoch_start: int
    seen: tuple[tuple[int, int, int], ...] = ()
    proposed: tuple[int, tuple[int, ...], Pairs] | None = None


class Follows(NamedTuple):
    """What a follower's machine holds between two questions; `to_sync`: the leader's high watermark, until what came
    with it is durable, and nothing is asked."""

    leader: int
    epoch: int
    unclean_since: int = -1
    to_sync: int | None = None


class Broker(NamedTuple):
    """A process and its disk. `known` is what it leads by, `starts` its history of epochs, `durable` how many records
    are synced, `heard` what followers told in an earlier epoch."""

    known: Known
    life: int = 0
    is_running: bool = True
    log: Log = ()
    durable: int = 0
    high_watermark: int = 0
    starts: tuple[Start, ...] = ()
    heard: tuple[tuple[int, int], ...] = ()
    role: Leads | Follows | None = None


NOTHING = Known(0, 0)


class Message(NamedTuple):
    """A Fetch on its way to a leader, or with `answer` the response to it, on its way back: high watermark, where the
    logs part, records. The follower waits for it no more."""

    follower: int
    life: int
    leader: int
    asked: Asked
    answer: tuple[int, EpochEnd | None, Log] | None = None


class Write(NamedTuple):
    """A proposal on its way to the metadata store."""

    leader: int
    life: int
    epoch: int
    version: int
    in_sync: tuple[int, ...]
    added: Pairs


class World(NamedTuple):
    """All there is. `messages` and `writes` are those that others overtake. `acked`: what was below the high watermark
    of a leader; `wrong`: what must never be, and is."""

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
        """The metadata's next version; the same world when nothing changes."""
        number = number_of(image)
        if number == self.newest.number:
            return self
        return self._replace(newest=Known(self.newest.version + 1, number))


def beginning(limits: Limits) -> World:
    """Brokers that serve, and know nothing yet."""
    ids = tuple(range(1, limits.brokers + 1))
    leader, isr = limits.leader, limits.isr or ids
    partition = PartitionState(leader, 0, isr, ids, incarnation=incarnation(leader, 0))
    members = tuple((0, BrokerState.SERVING) for _ in ids)
    known = Known(0, number_of(Image(partition, members, limits.min_isr)))
    return World(known, tuple(Broker(known) for _ in ids))


def normal(world: World, limits: Limits) -> World:
    """The same world without what makes no difference any more: of a version, whether it is the newest; of a record,
    which others are it."""
    newest = world.newest
    writes = tuple(one._replace(version=int(one.version == newest.version)) for one in world.writes)
    brokers = tuple(_without_history(world, one, limits) for one in range(1, len(world.brokers) + 1))
    world = world._replace(newest=newest._replace(version=1), brokers=brokers, writes=writes)
    return _renumbered(world) if world.appends > 1 else world


def _without_history(world: World, one: int, limits: Limits) -> Broker:
    """Of what it knows a leader goes by who is in sync and who serves, and by whether it is new."""
    broker, newest = world.broker(one), world.newest
    heard, role = broker.heard if limits.remembers else (), broker.role
    if not isinstance(role, Leads):
        is_gone = not broker.is_running and _is_gone(newest.image, one, limits)
        broker = broker._replace(log=(), durable=0, high_watermark=0, starts=()) if is_gone else broker
        return broker._replace(known=NOTHING, heard=heard)
    is_new = int(broker.known.version == newest.version)
    known = Known(is_new, newest.number if is_new else _as_led_by(broker.known.number))
    if role.proposed is not None:
        role = role._replace(proposed=(is_new, *role.proposed[1:]))
    return broker._replace(known=known, role=role, heard=heard)


def _is_gone(image: Image, one: int, limits: Limits) -> bool:
    """Whether a broker that does not run never comes back, and nobody counts on its log."""
    epoch, state = image.members[one - 1]
    listed = {*image.partition.isr, *image.partition.elr}
    return epoch >= limits.lives and state is BrokerState.FENCED and one not in listed


@cache
def _as_led_by(number: int) -> int:
    """What of an image a leader goes by that has learnt nothing since."""
    image = _images[number]
    partition = PartitionState(NO_LEADER, 0, image.partition.isr, image.partition.replicas)
    return number_of(image._replace(partition=partition))


def _renumbered(world: World) -> World:
    logs = [*(one.log for one in world.brokers), world.acked]
    logs += [one.answer[2] for one in world.messages if one.answer is not None]
    used = sorted({record[1] for log in logs for record in log})
    if used == [*range(len(used))]:
        return world
    ranks = {which: rank for rank, which in enumerate(used)}

    def again(log: Log) -> Log:
        return tuple((epoch, ranks[which]) for epoch, which in log)

    brokers = tuple(one._replace(log=again(one.log)) for one in world.brokers)
    messages = tuple(
        one if one.answer is None else one._replace(answer=(*one.answer[:2], again(one.answer[2])))
        for one in world.messages
    )
    return world._replace(brokers=brokers, messages=messages, acked=again(world.acked))
