"""Exhaustive model of confirmed reads: all orders of events of a leader that may have a successor (RULES K24).

Broker 1 leads in an epoch, brokers 2 and 3 follow. The metadata elect a successor at any time. Messages take any time,
each broker learns of the election at any time, and the successor *acts* at any time from then on: it acknowledges a
commit, or ends a transaction. A read of the leader is one of two:

- OffsetFetch with require_stable, by a consumer that joins no group. Its reply must show the acts of the successor.
- A verification for a client without KIP-890: a partition's leader asks whether a transaction is open, and appends a
  batch of it unless a marker has come meanwhile. No batch may be appended behind the marker of its transaction.

The leader's classes are those of the product. There are no times: a read may expire at any step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from engine.partitions.confirmed_reads import ConfirmedReads
from engine.replication.confirmations import Confirmation
from engine.waiting_reads import NEVER, AsOf, ConfirmationInputs, EventClock, WaitingReads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLLOWERS = 2, 3

Step = tuple[str, "Callable[[World], None]"]


@dataclass
class Known:
    """Fake of `engine.replication.replicas.Replicas`: the metadata as the leader knows them."""

    successors: frozenset[int] = frozenset(FOLLOWERS)
    others: frozenset[int] = frozenset(FOLLOWERS)
    enough_others: int = 1
    lag_max_ms: int = 1


@dataclass
class Link:
    """Connection of one follower. Its Fetch is on its way, or waits at the leader, or its response is on its way.

    A follower that has the response fetches again, unless it has learnt of another leader.
    """

    confirmation: Confirmation = field(default_factory=Confirmation)
    state: str = "fetch"


def no_time() -> int:
    return 0


def no_session() -> bool:
    return False


class World:
    """A state of the model. `acted`: the successor has acted; `acted_before`: it had acted when the read came.
    `wrong`: the broken promise, None: none."""

    def __init__(self, min_isr: int, isr_changes: int) -> None:
        self.min_isr = min_isr
        self.known = Known()
        self.waiting = WaitingReads(EventClock(no_time))
        self.reads = ConfirmedReads(self.known, ConfirmationInputs(no_session, self.waiting))  # type: ignore[arg-type]
        self.links = {one: Link() for one in FOLLOWERS}
        self.isr, self.elr = frozenset(FOLLOWERS), frozenset[int]()  # as the metadata have them, but for the leader
        self.elected: int | None = None
        self.learnt: frozenset[int] = frozenset()
        self.acted = self.acted_before = False
        self.read = "none"  # asked, came, told, over
        self.isr_changes = isr_changes
        self.is_void = False  # whether the verification is void
        self.metadata_as_of: AsOf | None = None  # of a read of the metadata that is under way
        self.metadata_shows: bool | None = None
        self.is_over = False  # the leader has learnt of its successor
        self.wrong: str | None = None

    def copy(self) -> World:
        """Copy the state by hand: `copy.deepcopy` takes ten times as long."""
        found = World.__new__(World)
        found.__dict__ |= self.__dict__
        found.known = replace(self.known)
        found.waiting = WaitingReads(EventClock(no_time))
        found.waiting.clock._order = self.waiting.clock._order
        found.links = {one: _copied(link) for one, link in self.links.items()}
        found.reads = ConfirmedReads(found.known, ConfirmationInputs(no_session, found.waiting))  # type: ignore[arg-type]
        found.reads._moments._as_of |= self.reads._moments._as_of
        for one in self.reads._waiting:
            found.reads._waiting.append(one._replace(on_confirmed=found.on_confirmed))
            found.waiting.add(found.reads)
        return found

    def on_confirmed(self, is_confirmed: bool) -> None:
        self.read = "told" if is_confirmed else "over"
        if is_confirmed and self.acted_before:
            self.wrong = "a read is confirmed that came after a successor had acted"

    def key(self) -> object:
        """The key of the state: states with the same key have the same futures. Only the order of moments counts."""
        shown, waiting = self.reads._moments._as_of, self.reads._waiting
        moments = [*shown.values(), *(one.asked for one in waiting), self.metadata_as_of or NEVER]
        for link in self.links.values():
            moments += (link.confirmation._responded, link.confirmation.as_of)
        ranks = {order: rank for rank, order in enumerate(sorted({one.order for one in moments}))}
        links = [(link.state, [ranks[one.order] for one in _moments(link)]) for link in self.links.values()]
        return (
            tuple((state, *orders) for state, orders in links),
            tuple(ranks[shown[one].order] if one in shown else None for one in FOLLOWERS),
            tuple(ranks[one.asked.order] for one in waiting),
            None if self.metadata_as_of is None else ranks[self.metadata_as_of.order],
            (
                self.metadata_shows,
                self.known.successors,
                self.isr,
                self.elr,
                self.elected,
                self.learnt,
                self.isr_changes,
            ),
            (self.acted, self.acted_before, self.read, self.is_void, self.is_over, self.wrong),
        )


def _copied(link: Link) -> Link:
    confirmation = Confirmation()
    confirmation._responded, confirmation.as_of = _moments(link)
    return Link(confirmation, link.state)


def _moments(link: Link) -> tuple[AsOf, AsOf]:
    return link.confirmation._responded, link.confirmation.as_of


def steps(world: World) -> Iterator[Step]:
    """The next possible steps."""
    for one in FOLLOWERS:
        yield from _of_link(world, one)
        if world.elected is not None and one not in world.learnt:
            yield f"{one} learns who leads", partial(_learn, one=one)
    yield from _of_reads(world)
    yield from _of_metadata(world)


def _of_link(world: World, one: int) -> Iterator[Step]:
    state = world.links[one].state
    if state == "fetch":
        yield f"the Fetch of {one} comes", lambda world: _fetched(world, one)
    elif state == "waits":
        yield f"{one} is answered", lambda world: _responded(world, one)
    elif one not in world.learnt:
        yield f"{one} fetches again", lambda world: _fetch(world, one)


def _fetch(world: World, one: int) -> None:
    world.links[one].state = "fetch"


def _fetched(world: World, one: int) -> None:
    link = world.links[one]
    link.state = "waits"
    link.confirmation.fetched()
    world.reads.fetched(one, link.confirmation.as_of)
    world.waiting.check()


def _responded(world: World, one: int) -> None:
    world.links[one].state = "response"
    world.links[one].confirmation.responded(world.waiting.clock.next())


def _learn(world: World, one: int) -> None:
    world.learnt |= {one}


def _of_reads(world: World) -> Iterator[Step]:
    if world.elected in world.learnt and not world.acted:
        yield "the successor acts", _act
    if world.read == "none":
        yield "a read is asked for", _ask
    elif world.read == "asked":
        yield "the read comes", _read
    elif world.read == "told":
        yield "the reply is there", _append
    if len(world.reads):
        yield "the read is given up", lambda world: world.waiting.expire(1)


def _act(world: World) -> None:
    world.acted = True
    world.is_void = world.read in ("asked", "came", "told")  # a marker comes to the partition whose leader has asked


def _ask(world: World) -> None:
    world.read, world.is_void = "asked", False


def _read(world: World) -> None:
    world.read, world.acted_before = "came", world.acted
    world.reads.wait(world.on_confirmed)


def _append(world: World) -> None:
    world.read = "over"
    if world.acted and not world.is_void:
        world.wrong = "a batch is appended behind the marker of its transaction"


def _of_metadata(world: World) -> Iterator[Step]:
    if world.elected is None:
        for one in world.isr | world.elr:
            yield f"{one} is elected", partial(_elect, one=one)
        for one in FOLLOWERS if world.isr_changes else ():
            if one in world.isr:
                yield f"{one} leaves the ISR", partial(_shrink, one=one)
            elif one not in world.known.successors:
                yield f"{one} is proposed for the ISR", partial(_propose, one=one)
            else:
                yield f"{one} enters the ISR", partial(_expand, one=one)
        yield "the leader learns its ISR", _learn_isr
    if world.metadata_as_of is None:
        if len(world.reads) and world.metadata_shows is None:
            yield "the leader asks the metadata", _ask_metadata
    elif world.metadata_shows is None:
        yield "the metadata are read", _read_metadata
    else:
        yield "the metadata are told", _metadata_confirmed


def _elect(world: World, one: int) -> None:
    world.elected = one


def _shrink(world: World, one: int) -> None:
    """Write an ISR without that replica, as the leader has proposed it."""
    world.isr -= {one}
    world.isr_changes -= 1
    if 1 + len(world.isr) < world.min_isr:
        world.elr |= {one}


def _propose(world: World, one: int) -> None:
    world.known.successors |= {one}


def _expand(world: World, one: int) -> None:
    world.isr |= {one}
    world.isr_changes -= 1
    if 1 + len(world.isr) >= world.min_isr:
        world.elr = frozenset()
    world.elr -= {one}


def _learn_isr(world: World) -> None:
    world.known.successors = world.isr | world.elr
    world.reads.check()


def _ask_metadata(world: World) -> None:
    world.metadata_as_of = world.waiting.clock.next()


def _read_metadata(world: World) -> None:
    world.metadata_shows = world.elected is None


def _metadata_confirmed(world: World) -> None:
    as_of = world.metadata_as_of
    assert as_of is not None
    if world.metadata_shows:
        world.waiting.confirm(as_of)
    else:
        world.is_over = True
        world.reads.end()
    world.metadata_as_of = None  # once


@dataclass(frozen=True)
class Outcome:
    """Result of the search. `wrong`: the broken promise, None: none; `way`: the steps that lead to it."""

    worlds: int
    wrong: str | None = None
    way: tuple[str, ...] | None = None


def explore(min_isr: int, isr_changes: int) -> Outcome:
    """Search all reachable states, by number of steps. States after the end of the leadership are not searched further:
    the leader answers no more reads there."""
    first = World(min_isr, isr_changes)
    ways: dict[object, tuple[object, str]] = {first.key(): (None, "")}
    worlds = deque([first])
    while worlds:
        before = worlds.popleft()
        for name, step in steps(before):
            world = before.copy()
            step(world)
            key = world.key()
            if key in ways:
                continue
            ways[key] = before.key(), name
            if world.wrong is not None:
                return Outcome(len(ways), world.wrong, _way_to(ways, key))
            if not world.is_over and world.read != "over":
                worlds.append(world)
    return Outcome(len(ways))


def _way_to(ways: dict[object, tuple[object, str]], key: object) -> tuple[str, ...]:
    found: list[str] = []
    before, name = ways[key]
    while before is not None:
        found.append(name)
        before, name = ways[before]
    return tuple(reversed(found))


def main() -> None:
    """Run the searches of `make long`."""
    for min_isr in (1, 2, 3):
        outcome = explore(min_isr, isr_changes=2)
        print(f"min.insync.replicas={min_isr}: {outcome.worlds} worlds, {outcome.wrong or 'nothing is wrong'}")
        if outcome.way is not None:
            raise SystemExit("\n".join(outcome.way))


if __name__ == "__main__":
    main()
