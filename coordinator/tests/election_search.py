"""The search through the model of elections: every way of so many steps, with a check of all invariants.

Before it goes on from a state it also asks for the way out: once nothing fails any more, the partition has a leader
that serves and all replicas in sync again. The one exception is a partition whose ISR and ELR are all suspect: an
operator has to order an unclean election.

`python -m coordinator.tests.election_search --depth 9` prints how many states it saw, and the way to a wrong one.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from coordinator.api import NO_LEADER
from coordinator.tests.election_model import (
    REPLICAS,
    Limits,
    World,
    acknowledged,
    initial_world,
    normal,
    steps,
    wrong,
)
from testkit.ledger import note_for_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coordinator.tests.election_model import Step

# The steps of brokers and the controller without faults, by the ends of the steps' names.
MENDING = (
    " registers",
    " serves",
    " does not serve",
    " serves again",
    " has stopped",
    " copies",
    " has caught up",
)
MENDING_LAST = ("the wait is over", "all are back")  # if nothing else is left to do
BY_AN_OPERATOR = "an unclean election"
MENDING_STEPS_MAX = 60
STUCK = "it does not become whole"


@dataclass
class Recovery:
    """The check that a world becomes whole once nothing fails any more."""

    possible: Callable[[World], Iterator[Step]]
    _recovered: set[World] = field(default_factory=set)  # or on a way to such a state

    def stuck(self, world: World) -> tuple[str, ...] | None:
        """The way to a world that stays broken, or that is never at rest; None: it becomes whole."""
        passed: list[World] = []
        names: list[str] = []
        for _ in range(MENDING_STEPS_MAX):
            seen = normal(world)
            if seen in self._recovered:
                break
            passed.append(seen)
            step = self._next(world)
            if step is None:
                if not is_recovered(world):
                    return tuple(names)
                break
            names.append(step[0])
            world = acknowledged(world, step[1])
        else:
            return tuple(names)
        self._recovered.update(passed)
        return None

    def _next(self, world: World) -> Step | None:
        remaining: dict[str, Step] = {}
        for name, after in self.possible(world):
            if after != world:
                if name.endswith(MENDING):
                    return name, after
                remaining[name] = name, after
        last = (*MENDING_LAST, *([BY_AN_OPERATOR] if _waits_for_an_operator(world) else ()))
        return next((remaining[name] for name in last if name in remaining), None)


def is_recovered(world: World) -> bool:
    return world.leader is not None and {*world.partition.isr} == {*REPLICAS}


def _waits_for_an_operator(world: World) -> bool:
    """Whether no replica that may be elected cleanly is free of suspicion."""
    partition = world.partition
    return partition.leader == NO_LEADER and {*partition.isr, *partition.elr} <= {
        suspect[0] for suspect in partition.suspect_replicas
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The number of states, the way to the first wrong one, and its broken invariant."""

    states: int
    wrong: str | None = None
    way: tuple[str, ...] = ()


def explore(limits: Limits, depth: int, *, may_stay_broken: bool = False) -> Outcome:
    """Every way of at most `depth` steps, the short ones first."""
    first = initial_world(limits)
    possible = partial(steps, limits=limits)
    recovery = Recovery(possible)
    predecessors: dict[World, tuple[World, str] | None] = {first: None}
    layer = [first]
    for _ in range(depth):
        following: list[World] = []
        for world in layer:
            if not may_stay_broken and (mending := recovery.stuck(world)) is not None:
                return Outcome(len(predecessors), STUCK, (*_way_to(world, predecessors), *mending))
            for name, next_world in possible(world):
                reached = acknowledged(world, next_world)
                reason, seen = wrong(world, reached), normal(reached)
                if reason is not None:
                    return Outcome(len(predecessors), reason, (*_way_to(world, predecessors), name))
                if seen not in predecessors:
                    predecessors[seen] = (world, name)
                    following.append(seen)
        layer = following
    return Outcome(len(predecessors))


def _way_to(world: World, predecessors: dict[World, tuple[World, str] | None]) -> tuple[str, ...]:
    way: list[str] = []
    while (step := predecessors[world]) is not None:
        world, name = step
        way.append(name)
    return tuple(reversed(way))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=9)
    depth, states = parser.parse_args().depth, 0
    for synced, closings_max, power_cuts_max in ((True, 0, 0), (False, 0, 0), (True, 2, 0), (True, 0, 1)):
        for min_isr in (1, 2, 3):
            limits = Limits(
                synced=synced,
                min_isr=min_isr,
                closings_max=closings_max,
                power_cuts_max=power_cuts_max,
                crashes_max=1 if power_cuts_max else Limits().crashes_max,
            )
            steps_max = depth - 2 if closings_max else depth  # there are more steps at each
            outcome = explore(limits, steps_max)
            kind = ("synced" if synced else "not synced") + (", logs are closed" if closings_max else "")
            kind += ", power is cut" if power_cuts_max else ""
            print(f"{kind}, min.insync.replicas={min_isr}, depth {steps_max}: {outcome.states} states", flush=True)
            states += outcome.states
            if outcome.wrong is not None:
                raise SystemExit(f"{outcome.wrong}: {', '.join(outcome.way)}")
    orders = f"all orders of {depth} steps, of {depth - 2} where logs are closed"
    note_for_ledger(f"{states} states of twelve kinds of topics, {orders}, 0 wrong")


if __name__ == "__main__":
    main()
