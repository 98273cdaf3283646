"""How many requests start in one turn of the loop, and what becomes of the others."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio
import trio.testing

from kafkawire.server.byte_budget import ByteBudget
from kafkawire.server.session import Session
from kafkawire.server.stats import ServerStats
from kafkawire.server.tests.test_server import FakeDispatcher, frames
from kafkawire.server.transport import SocketTransport
from kafkawire.server.turnstile import ENDS_PER_TURN, STARTS_PER_TURN, Turnstile
from kafkawire.wire.connection import CloseReason, ConnectionInfo, ConnectionLimits


@dataclass(eq=False)
class Connection:
    """Has so many requests to start."""

    name: int
    requests: int
    log: list[tuple[int, int]]
    turns: list[int] = field(default_factory=lambda: [0])

    def start_now(self) -> int:
        self.log.append((self.turns[0], self.name))
        return self.requests


class TurnCounter(trio.abc.Instrument):
    def __init__(self, turns: list[int]) -> None:
        self.turns = turns

    def before_io_wait(self, timeout: float) -> None:
        self.turns[0] += 1


@contextmanager
def turns_counted() -> Iterator[list[int]]:
    """How many turns of the loop there were so far."""
    counter = TurnCounter([0])
    trio.lowlevel.add_instrument(counter)
    yield counter.turns
    trio.lowlevel.remove_instrument(counter)


def per_turn(log: Sequence[tuple[int, int]]) -> list[int]:
    """How many entries there are of each turn, of which there are any."""
    return list(Counter(turn for turn, _ in log).values())


async def test_what_is_too_much_for_a_turn_starts_in_the_next_ones_in_order() -> None:
    turnstile, log = Turnstile(), list[tuple[int, int]]()
    with turns_counted() as turns:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turnstile.serve)
            await trio.testing.wait_all_tasks_blocked()
            for name in range(10):
                turnstile.start(Connection(name, STARTS_PER_TURN // 4, log, turns))
            await trio.testing.wait_all_tasks_blocked()
            turnstile.start(Connection(10, 1, log, turns))
            nursery.cancel_scope.cancel()
    assert [name for _, name in log] == list(range(11))
    assert per_turn(log) == [4, 4, 2, 1]


async def test_connections_that_a_peer_closes_at_once_end_a_few_in_a_turn() -> None:
    turnstile, ended, closed = Turnstile(), list[tuple[int, int]](), trio.Event()
    with turns_counted() as turns:

        async def end(name: int) -> None:
            await closed.wait()
            await turnstile.wait_to_end()
            ended.append((turns[0], name))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(turnstile.serve)
            async with trio.open_nursery() as connections:
                for name in range(3 * ENDS_PER_TURN):
                    connections.start_soon(end, name)
                await trio.testing.wait_all_tasks_blocked()
                closed.set()
            nursery.cancel_scope.cancel()
    assert sum(per_turn(ended)) == 3 * ENDS_PER_TURN
    assert max(per_turn(ended)) == ENDS_PER_TURN


async def test_what_a_peer_sent_before_it_left_is_started_although_it_came_late() -> None:
    ours, theirs = socket.socketpair()
    turnstile, dispatcher, log = Turnstile(), FakeDispatcher(), list[tuple[int, int]]()
    turnstile.start(Connection(0, STARTS_PER_TURN, log))  # nothing more in this turn, and nobody serves
    info = ConnectionInfo("PLAINTEXT", "127.0.0.1", "127.0.0.1")
    limits, budget, stats = ConnectionLimits(), ByteBudget(1 << 30), ServerStats()
    session = Session(SocketTransport(ours), info, dispatcher, limits, budget, stats, lambda _: None, turnstile)
    with theirs:
        theirs.sendall(frames("00"))
    await session.run()
    assert dispatcher.order == [0, 1]
    assert session.close_reason is CloseReason.CLOSED_BY_PEER
    assert session.start_now() == 0
