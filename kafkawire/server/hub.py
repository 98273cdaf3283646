"""Turns over all connections: receive, start, answer and send wherever there is work.

Why it exists: if each connection had a task that reads and another one that answers, task switches would cost more than
the work. Here a turn is one call. It visits every connection that is ready once, up to a budget of work. Work beyond
the budget comes first in the next turn, after trio's other tasks had theirs. The clock is read once a turn.

Two tasks call it. One waits for the poller's descriptor, the other for events without a descriptor, such as a commit
batch that is done.

The hub does not know requests; sessions do.
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
REPLIES_PER_TURN: Final = 128  # connections whose replies became ready
RECEIVED_PER_TURN_SIZE_BYTES: Final = 768 * 1024  # by all sessions together: about half a millisecond
RECEIVED_PER_VISIT_SIZE_BYTES: Final = 64 * 1024  # by each session, however many there are


class HubSession(Watcher, Protocol):
    """A connection, as the hub sees it."""

    def resume(self) -> bool:
        """Resume a paused connection if the budget admits it. Return whether it was resumed."""
        ...

    def unmute(self) -> None:
        """Resume a muted connection."""

    def evict(self) -> None:
        """Close a connection whose peer does not read its replies, to free their memory."""


class Host(Protocol):
    """The server, as seen by its sessions."""

    def spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Start a task."""

    def note_busy(self, session: Any) -> None:
        """Watch a session that has work under way, so that its deadlines are checked."""

    def note_ended(self, session: Any) -> None:
        """Forget a session that has ended. Called once."""


class Rounds(Protocol):
    """Commit batches of the requests of a turn; implemented by `engine.store.SegmentStore`."""

    def hold_commit_batches(self) -> None:
        """Wake no writer for appends from now on."""

    def write_commit_batches(self) -> None:
        """Write the held appends now, unless they have to wait. Their futures are settled before this returns."""


class NoRounds:
    """Commit batches of a server whose requests write nothing."""

    def hold_commit_batches(self) -> None: ...
    def write_commit_batches(self) -> None: ...


class Hub:
    """State shared by all sessions of a server: the poller, the bounds, and the present turn."""

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
        self._deferred: dict[Watcher, int] = {}
        self._paused: dict[HubSession, None] = {}
        self._muted: dict[HubSession, None] = {}
        self._slow: dict[HubSession, int] = {}  # bytes of unread replies, in the order in which they began
        self._idle = trio.lowlevel.ParkingLot()  # of the task that waits for noted events
        self._is_woken = False
        self._is_collecting = False  # replies that become ready are sent in this turn

    # Called by sessions

    def note_ready(self, session: Watcher) -> None:
        """Note that a session may have replies to send. It is visited soon, after the sessions noted before."""
        self._ready[session] = None
        if not self._is_collecting:
            self.wake()

    def defer(self, session: Watcher, events: int = 0) -> None:
        """Visit a session in the next turn, because it has more work than this turn allows."""
        self._deferred[session] = self._deferred.get(session, 0) | events
        self.wake()

    def pause(self, session: HubSession) -> None:
        """Pause a session until the budget admits it again."""
        self._paused[session] = None
        self.stats.pauses += 1
        self.stats.connections_paused = len(self._paused)

    def mute(self, session: HubSession) -> None:
        """Mute a session until it has no Produce in flight, or the budget is not crowded."""
        self._muted[session] = None
        self.stats.connections_muted = len(self._muted)

    def unmute(self, session: HubSession) -> None:
        """Unmute a session, whose reading then resumes."""
        self._muted.pop(session, None)
        self.stats.connections_muted = len(self._muted)
        session.unmute()

    def note_room(self) -> None:
        """Wake paused sessions, because requests have freed memory between two turns."""
        if self._paused:
            self.wake()

    def hold_replies(self, session: HubSession, size_bytes: int) -> None:
        """Count unread replies of a session. If all are too many, evict the session that has held them longest."""
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

    def forget(self, session: HubSession) -> None:
        """Forget a session that has ended."""
        self._ready.pop(session, None)
        self._deferred.pop(session, None)
        self._paused.pop(session, None)
        self._muted.pop(session, None)
        self.stats.connections_paused, self.stats.connections_muted = len(self._paused), len(self._muted)
        self.poller.forget(session)
        self.stats.in_flight_size_bytes = self.budget.held_size_bytes
        if self._paused or self._muted:
            self.wake()

    # Turns

    async def run(self) -> None:
        """Serve turns until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve_polled)
            await self._serve_noted()

    def close(self) -> None:
        """Close the poller, after all sessions have ended."""
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
        """Have another turn soon, for an event without a descriptor."""
        self._is_woken = True
        if self._idle:
            self._idle.unpark_all()

    def begin(self) -> None:
        """Read the clock, and allow a turn's work again."""
        self.now_s = trio.current_time()
        self.starts_left, self.replies_left, self._ends_left = STARTS_PER_TURN, REPLIES_PER_TURN, ENDS_PER_TURN

    def turn(self) -> None:
        """Visit all sessions with work, up to the turn's budget, and write the records that their requests append."""
        self.begin()
        found = self._take()
        share = RECEIVED_PER_TURN_SIZE_BYTES // (len(found) or 1)
        self.receive_max_size_bytes = max(RECEIVED_PER_VISIT_SIZE_BYTES, share)
        self._is_collecting = True
        self._rounds.hold_commit_batches()
        served = self._visit(found)
        self._rounds.write_commit_batches()
        self._is_collecting = False
        served.update(self._answer_ready())
        for session in served:
            session.end_turn()
        if self._paused:
            self._resume_paused()
        while self._muted and not self.budget.is_crowded:
            self.unmute(next(iter(self._muted)))
        self.stats.in_flight_size_bytes = self.budget.held_size_bytes
        self.stats.unanswered_size_bytes = self.budget.unanswered_size_bytes

    def _take(self) -> dict[Watcher, int]:
        """Sessions with work; those deferred by an earlier turn come first."""
        found, self._deferred = self._deferred, {}
        for session, events in self.poller.take():
            found[session] = found.get(session, 0) | events
        return found

    def _visit(self, found: dict[Watcher, int]) -> dict[Watcher, None]:
        """Visit sessions up to the turn's budget, and defer the rest. The visited ones."""
        visited: dict[Watcher, None] = {}
        for session, events in found.items():
            if self.starts_left > 0:
                visited[session] = None
                session.visit(events)
            else:
                self.defer(session, events)
        return visited

    def _answer_ready(self) -> dict[Watcher, None]:
        """Send ready replies up to the turn's budget. The answered sessions."""
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
