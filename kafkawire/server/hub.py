"""One turn after the other for all connections: who has something to receive, to start, to answer, to send.

Why it exists: a request that has a task of its own to be read by, and another to be answered by, costs more in switches
than in work. Here a turn is one call: every connection that is ready is visited once, up to a budget of work, and what
is too much comes first in the next turn, after trio's other tasks had theirs. The clock is read once a turn.

Two tasks call it: one waits for the poller's descriptor, the other for what no descriptor tells of, such as a round of
the engine that is done.

It refuses to know what a request is; that is the session's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import trio

from kafkawire.server.byte_budget import ByteBudget
from kafkawire.server.poller import Poller, SystemPoller, Watcher, system_poller
from kafkawire.server.stats import ServerStats

STARTS_PER_TURN: Final = 128  # requests
ENDS_PER_TURN: Final = 64  # connections
REPLIES_PER_TURN: Final = 128  # of those that became ready
RECEIVED_PER_TURN_SIZE_BYTES: Final = 768 * 1024  # by all sessions together, half a millisecond or so
RECEIVED_PER_VISIT_SIZE_BYTES: Final = 64 * 1024  # by one, however many there are


class Visited(Watcher, Protocol):
    """A connection."""

    def resume(self) -> bool:
        """Of one that is paused: whether the budget admits it, and it goes on."""
        ...

    def unmute(self) -> None:
        """Of one that is muted: it goes on."""

    def evict(self) -> None:
        """Of one whose peer does not read its replies: others need its room."""


class Host(Protocol):
    """The server, as its sessions see it."""

    def spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Start a task."""

    def is_busy(self, session: Any) -> None:
        """It has something under way: ask it now and then whether it is overdue."""

    def has_ended(self, session: Any) -> None:
        """Once."""


class Rounds(Protocol):
    """What the requests of a turn have the engine write; `engine.store.SegmentStore` has it."""

    def hold_rounds(self) -> None:
        """Wake nobody for what is appended from now on."""

    def write_rounds(self) -> None:
        """Write it now, if it need not wait; who asked for it is told before this returns."""


class NoRounds:
    """Of a server whose requests write nothing."""

    def hold_rounds(self) -> None: ...
    def write_rounds(self) -> None: ...


class Hub:
    """What all sessions of a server share: the poller, the bounds, and this turn."""

    def __init__(
        self,
        budget: ByteBudget,
        stats: ServerStats,
        rounds: Rounds | None = None,
        open_system: Callable[[], SystemPoller] = system_poller,
    ) -> None:
        self.budget = budget
        self._rounds = NoRounds() if rounds is None else rounds
        self.stats = stats
        self.poller = Poller(self.wake, open_system)
        self.now_s = trio.current_time()  # of this turn
        self.starts_left = STARTS_PER_TURN
        self.replies_left = REPLIES_PER_TURN
        self.receive_max_size_bytes = RECEIVED_PER_TURN_SIZE_BYTES  # in one visit of this turn
        self._ends_left = ENDS_PER_TURN
        self._ready: dict[Watcher, None] = {}  # dicts keep their order: simulations must repeat
        self._late: dict[Watcher, int] = {}
        self._paused: dict[Visited, None] = {}
        self._muted: dict[Visited, None] = {}
        self._slow: dict[Visited, int] = {}  # with the bytes held for each; who began first comes first
        self._idle = trio.lowlevel.ParkingLot()  # of the task for what is noted
        self._is_woken = False
        self._is_collecting = False  # this turn will answer what becomes ready

    # What sessions say

    def note_ready(self, session: Watcher) -> None:
        """It may have something to answer: it is visited soon, behind all that becomes ready together with it."""
        self._ready[session] = None
        if not self._is_collecting:
            self.wake()

    def defer(self, session: Watcher, events: int = 0) -> None:
        """It has more to do than this turn allows, be it a turn of the hub or the server's, as when all drain."""
        self._late[session] = self._late.get(session, 0) | events
        self.wake()

    def pause(self, session: Visited) -> None:
        """It waits until the budget admits it again."""
        self._paused[session] = None
        self.stats.pauses += 1
        self.stats.connections_paused = len(self._paused)

    def mute(self, session: Visited) -> None:
        """It waits until it has no Produce in flight, or the budget is crowded no longer."""
        self._muted[session] = None
        self.stats.connections_muted = len(self._muted)

    def unmute(self, session: Visited) -> None:
        """It goes on in the next turn."""
        self._muted.pop(session, None)
        self.stats.connections_muted = len(self._muted)
        session.unmute()

    def note_room(self) -> None:
        """Requests have let go of memory between two turns: paused connections may receive again."""
        if self._paused:
            self.wake()

    def hold_replies(self, session: Visited, size_bytes: int) -> None:
        """So many bytes of replies wait for its peer to read. Who has made us wait longest pays for all."""
        self.budget.replies_size_bytes += size_bytes - self._slow.get(session, 0)
        if size_bytes:
            self._slow[session] = size_bytes
        else:
            self._slow.pop(session, None)
        while self.budget.holds_too_many_replies and self._slow:
            next(iter(self._slow)).evict()

    def may_end(self) -> bool:
        """Whether one more connection may end in this turn: each takes its time."""
        self._ends_left -= 1
        return self._ends_left >= 0

    def forget(self, session: Visited) -> None:
        """It has ended."""
        self._ready.pop(session, None)
        self._late.pop(session, None)
        self._paused.pop(session, None)
        self._muted.pop(session, None)
        self.stats.connections_paused, self.stats.connections_muted = len(self._paused), len(self._muted)
        self.poller.forget(session)
        self.stats.in_flight_size_bytes = self.budget.held_size_bytes
        if self._paused or self._muted:
            self.wake()

    # Turns

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_polled)
            await self._serve_noted()

    def close(self) -> None:
        """All sessions have ended."""
        self.poller.close()

    async def _serve_polled(self) -> None:
        system = await self.poller.opened()
        while True:
            await trio.lowlevel.wait_readable(system.fileno())
            self.turn()

    async def _serve_noted(self) -> None:
        while True:
            while not self._is_woken:
                await self._idle.park()
            self._is_woken = False
            self.turn()
            await trio.lowlevel.checkpoint()

    def wake(self) -> None:
        """There is something to do that no descriptor tells of."""
        self._is_woken = True
        if self._idle:
            self._idle.unpark_all()

    def begin(self) -> None:
        """Reads the clock, and allows a turn's work again."""
        self.now_s = trio.current_time()
        self.starts_left, self.replies_left, self._ends_left = STARTS_PER_TURN, REPLIES_PER_TURN, ENDS_PER_TURN

    def turn(self) -> None:
        """Visits all that have something to do, as far as a turn goes, and has written what they want written."""
        self.begin()
        found = self._take()
        share = RECEIVED_PER_TURN_SIZE_BYTES // (len(found) or 1)
        self.receive_max_size_bytes = max(RECEIVED_PER_VISIT_SIZE_BYTES, share)
        self._is_collecting = True
        self._rounds.hold_rounds()
        served = self._visit(found)
        self._rounds.write_rounds()
        self._is_collecting = False
        served.update(self._answer_ready())
        for session in served:
            session.settle()
        if self._paused:
            self._resume_paused()
        while self._muted and not self.budget.is_crowded:
            self.unmute(next(iter(self._muted)))
        self.stats.in_flight_size_bytes = self.budget.held_size_bytes
        self.stats.unanswered_size_bytes = self.budget.unanswered_size_bytes

    def _take(self) -> dict[Watcher, int]:
        """Those that an earlier turn had no time for come first."""
        found, self._late = self._late, {}
        for session, events in self.poller.take():
            found[session] = found.get(session, 0) | events
        return found

    def _visit(self, found: dict[Watcher, int]) -> dict[Watcher, None]:
        """Those that had their turn; the rest comes first in the next one."""
        visited: dict[Watcher, None] = {}
        for session, events in found.items():
            if self.starts_left > 0:
                visited[session] = None
                session.visit(events)
            else:
                self.defer(session, events)
        return visited

    def _answer_ready(self) -> dict[Watcher, None]:
        """As above, of what became ready."""
        ready, self._ready = self._ready, {}
        answered: dict[Watcher, None] = {}
        for session in ready:
            if self.replies_left > 0:
                answered[session] = None
                session.answer()
            else:
                self.note_ready(session)
        return answered

    def _resume_paused(self) -> None:
        for session in [*self._paused]:
            if session.resume():
                self._paused.pop(session, None)
        self.stats.connections_paused = len(self._paused)
