"""What there is in the model: brokers, what is under way between them, and the metadata. Values, that can be compared.

An image of the metadata is interned, so that worlds compare quickly; its version says which of two is newer, and only
that: worlds that differ in nothing else are one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from coordinator.api import BrokerInfo, BrokerState, PartitionState
from coordinator.cluster.elections import Electorate

Record = tuple[int, int]  # the epoch it was written in, and which one it is
Log = tuple[Record, ...]
Start = tuple[int, int]  # an epoch, and the offset it began at

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
    """What a leader's machine holds. `seen`: of each follower that has fetched its end, its life, and whether it is
    late; `are_late`: the others are. `proposed`: version, ISR, who is added in which life."""

    epoch: int
    epoch_start: int
    seen: tuple[tuple[int, int, int, bool], ...] = ()
    are_late: bool = False
    proposed: tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]] | None = None


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
    added: tuple[tuple[int, int], ...]


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
    """The same world with the smallest versions, and without what makes no difference any more."""
    versions = {world.newest.version, *(one.version for one in world.writes)}
    for one in world.brokers:
        if isinstance(one.role, Leads):
            versions.add(one.known.version)
            if one.role.proposed is not None:
                versions.add(one.role.proposed[0])
    ranks = {version: rank for rank, version in enumerate(sorted(versions))}
    brokers = tuple(_renumbered(one, ranks, limits) for one in world.brokers)
    writes = tuple(one._replace(version=ranks[one.version]) for one in world.writes)
    newest = world.newest._replace(version=ranks[world.newest.version])
    return world._replace(newest=newest, brokers=brokers, writes=writes)


def _renumbered(broker: Broker, ranks: dict[int, int], limits: Limits) -> Broker:
    role, heard = broker.role, broker.heard if limits.remembers else ()
    if not isinstance(role, Leads):
        return broker._replace(known=NOTHING, heard=heard)
    known = broker.known._replace(version=ranks[broker.known.version])
    if role.proposed is not None:
        role = role._replace(proposed=(ranks[role.proposed[0]], *role.proposed[1:]))
    return broker._replace(known=known, role=role, heard=heard)
