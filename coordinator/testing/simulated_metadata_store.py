"""An ensemble in memory that misbehaves as real ones may, on demand or by a seed.

Each client reads its own replica of the tree. The replica may lag behind until the client writes or syncs, unless a
deposed leader answers the sync. Wake-ups come when the replica advances, so they are as late as it is, as in ZooKeeper.
Requests and replies can be lost, and requests can be late; connections can be lost and be back before the client
notices. If a client is paused or cut off, its session ends by the clock; the client learns that when it is connected
again. Without faults the ensemble behaves, and then also serves as the store of a whole broker in memory that is
stopped and started again.

A multi may be as late as in ZooKeeper: the leader obeys only the server at which a session was last seen. So a multi of
an earlier connection is done before the session's next write or true sync, or never; reads do not show which.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

import trio

from coordinator.metadata_store.statistics import SessionState, SessionStatistics
from coordinator.metadata_store.store import ConnectionLost, Operation, SessionLost, StoreError
from coordinator.metadata_store.tree import Effect, NodeTree
from coordinator.metadata_store.tree_reads import TreeReads
from coordinator.metadata_store.wakes import Wakes, touched_by

if TYPE_CHECKING:
    from collections.abc import Sequence


SESSION_TIMEOUT_S = 18.0
REQUEST_TIMEOUT_SHARE = 2 / 3  # of the session's time: how long a request waits for a server that is silent
LATE_LANDS = 0.5  # probability that a late multi arrives, at each write or sync of any client


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, drawn per operation from the ensemble's random source."""

    request_lost: float = 0.0
    request_late: float = 0.0
    reply_lost: float = 0.0
    replica_lags: float = 0.0
    deposed_sync: float = 0.0
    flap: float = 0.0


class Loss(Enum):
    """Part of a multi that is lost; the client learns nothing of the outcome."""

    NOTHING = "nothing"
    REQUEST = "the request: it is not done"
    LATE = "the reply, before the multi is even done: that may yet happen"
    REPLY = "the reply: it is done"
    REPLY_AND_LINE = "the reply, and from then on the connection"


class FakeEnsemble:
    """The servers: the committed tree and the connected clients. Outlives its clients."""

    def __init__(
        self,
        random: Random | None = None,
        faults: Faults | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> None:
        self.random = random or Random(0)  # noqa: S311 (a seed, to repeat a run)
        self.faults = faults or Faults()
        self.session_timeout_s = session_timeout_s
        self.history: list[list[Effect]] = []
        self._tree = NodeTree()
        self._clients: dict[int, FakeStore] = {}
        self._sessions_given = 0

    def connect(self) -> FakeStore:
        """A new client with a session of its own."""
        return FakeStore(self)

    def expire(self, client: FakeStore) -> None:
        """Ends the client's session: its ephemeral nodes go now, it notices once it runs and is connected."""
        if self._clients.pop(client.session_id, None) is not None:
            self._commit(self._tree.stage_end_of_session(client.session_id))
            client.lose_session()

    def roll_back(self, position: int) -> None:
        """Restore the servers from a snapshot that had the first `position` entries of `history`. The sessions of the
        snapshot end; the servers know nothing of the present ones."""
        clients, self._clients = [*self._clients.values()], {}
        del self.history[position:]
        self._tree = NodeTree()
        for effects in self.history:
            self._tree.apply(effects)
        for session_id in range(1, self._sessions_given + 1):
            self._commit(self._tree.stage_end_of_session(session_id))
        for client in clients:
            client.forget()

    def catch_up_all(self) -> None:
        """Let every replica that is not held back catch up, and late wake-ups with it."""
        for client in self._clients.values():
            client.advance()

    def new_session(self, client: FakeStore) -> int:
        """Registers the client under a new session id."""
        self._sessions_given += 1
        self._clients[self._sessions_given] = client
        return self._sessions_given

    def multi(self, operations: Sequence[Operation], session_id: int) -> None:
        """Commit a client's multi, or raise its error."""
        self.go_on(session_id)
        self.order(operations, session_id)

    def go_on(self, session_id: int) -> None:
        """Let late multis arrive, each client's by chance. Late multis of this session that have not arrived never
        will."""
        for client in self._clients.values():
            if client.late and self.random.random() < LATE_LANDS:
                client.land()
        if (future := self._clients.get(session_id)) is not None:
            future.late.clear()

    def order(self, operations: Sequence[Operation], session_id: int) -> None:
        """Give the multi its place among all writes."""
        self._commit(self._tree.stage(operations, session_id))

    def strikes(self, probability: float) -> bool:
        """Whether a fault of this probability happens now."""
        return probability > 0 and self.random.random() < probability

    def _commit(self, effects: list[Effect]) -> None:
        self._tree.apply(effects)
        self.history.append(effects)
        for client in list(self._clients.values()):
            if not self.strikes(self.faults.replica_lags):
                client.advance()


class FakeStore(TreeReads):
    """A `MetadataStore`. The public attributes are the levers of a test."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.ensemble = ensemble
        self.script: deque[Loss] = deque()  # of the next multis, before chance
        self.late: list[Sequence[Operation]] = []  # multis that are still on their way
        self.lagging = False  # reads and wake-ups stand still until the next multi or sync
        self.has_deposed_leader = False  # a deposed leader answers its syncs, and knows nothing new
        self._disconnected = False
        self._silent = False
        self._closed = False
        self._silence: trio.CancelScope | None = None  # while the servers do not hear of this client
        self._tree = NodeTree()
        self._position = 0
        self._wakes = Wakes()
        self._running = trio.Event()
        self._running.set()
        self._lost = False
        self._connected_s = trio.current_time()
        self.session = SessionStatistics(self._silent_s, SessionState.CONNECTED, sync_connects=1)
        self.session_id = ensemble.new_session(self)
        self._catch_up()

    @property
    def disconnected(self) -> bool:
        """Whether no server can be reached."""
        return self._disconnected

    @disconnected.setter
    def disconnected(self, disconnected: bool) -> None:
        self._disconnected = disconnected
        self._wakes.wake_all()
        self._note_silence()

    @property
    def silent(self) -> bool:
        """Whether the server that it is connected to hears and answers nothing, and leaves the connection open: each
        request is lost, and waits for the read timeout. No wake-up comes before the client has left the server."""
        return self._silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._silent = silent
        if not silent:
            self._wakes.wake_all()  # it has left the server, and another one takes it on
        self._note_silence()

    def pause(self) -> None:
        """Stop the process as under SIGSTOP."""
        self._running = trio.Event()
        self._note_silence()

    def resume(self) -> None:
        """Let the process go on; it learns the state of its session."""
        self._running.set()
        self._note_silence()
        if self._lost:
            self._wakes.wake_all()
        self.advance()

    def flap(self) -> None:
        """The connection is lost and back unnoticed: no call fails, and every wake-up is set."""
        self._wakes.wake_all()

    def land(self) -> None:
        """The late multis arrive; the client does not learn their outcomes."""
        late, self.late = self.late, []
        for operations in late:
            with suppress(StoreError):
                self.ensemble.order(operations, self.session_id)

    def lose_session(self) -> None:
        """Called by the ensemble when the session has ended."""
        self._lost = True
        self.late.clear()
        if self._is_connected():
            self._wakes.wake_all()

    def forget(self) -> None:
        """Called by the ensemble when it was restored from a snapshot."""
        self._tree, self._position = NodeTree(), 0
        self.lose_session()

    def advance(self) -> None:
        """Brings the replica up to date unless it is held back."""
        if not (self.lagging or self._lost) and self._is_connected():
            self._catch_up()

    def _silent_s(self) -> float:
        return 0.0 if self._is_connected() else trio.current_time() - self._connected_s

    def _is_connected(self) -> bool:
        return self._running.is_set() and not (self._disconnected or self._silent)

    def _note_silence(self) -> None:
        """Lets the session end once the client was silent for long enough."""
        if self._is_connected():
            if self._silence is not None:
                self._silence.cancel()
                self._silence = None
        elif self._silence is None and not self._lost:
            self._connected_s = trio.current_time()
            self._silence = trio.CancelScope()
            trio.lowlevel.spawn_system_task(self._end_session_in_time, self._silence)

    async def _end_session_in_time(self, silence: trio.CancelScope) -> None:
        with silence:
            await trio.sleep(self.ensemble.session_timeout_s)
            self.ensemble.expire(self)

    async def multi(self, operations: Sequence[Operation]) -> None:
        """See `MetadataStore`. After a lost reply, reads are stale until the next reply, as after a reconnect."""
        await self._enter()
        loss = self.script.popleft() if self.script else self._chance()
        if loss is Loss.NOTHING:
            try:
                self.ensemble.multi(operations, self.session_id)
            finally:
                self._show_the_newest()  # a failed multi had its place among all writes too
            return
        self._wakes.wake_all()
        if loss is Loss.LATE:
            self.late.append(operations)
        elif loss is not Loss.REQUEST:
            self.lagging = True
            with suppress(StoreError):
                self.ensemble.multi(operations, self.session_id)
        if loss is Loss.REPLY_AND_LINE:
            self.disconnected = True
        raise ConnectionLost

    def _chance(self) -> Loss:
        faults = self.ensemble.faults
        chances = {Loss.REQUEST: faults.request_lost, Loss.LATE: faults.request_late, Loss.REPLY: faults.reply_lost}
        return next((loss for loss, chance in chances.items() if self.ensemble.strikes(chance)), Loss.NOTHING)

    async def sync(self) -> None:
        """See `MetadataStore`."""
        await self._enter()
        if not (self.has_deposed_leader or self.ensemble.strikes(self.ensemble.faults.deposed_sync)):
            self.ensemble.go_on(self.session_id)
            self._show_the_newest()

    async def renew(self) -> None:
        """See `MetadataStore`."""
        await trio.lowlevel.checkpoint()
        await self._running.wait()
        if self._closed:
            raise SessionLost
        if self.disconnected:
            raise ConnectionLost
        await self._wait_if_silent()
        self.ensemble.expire(self)
        self._lost, self.lagging = False, False
        self.session_id = self.ensemble.new_session(self)
        self._catch_up()

    async def close(self) -> None:
        """See `MetadataStore`."""
        await trio.lowlevel.checkpoint()
        self._closed = True
        self._wakes.wake_all()
        if not (self._disconnected or self._silent):
            self.ensemble.expire(self)

    async def _enter(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._running.wait()
        if self._closed:
            raise SessionLost
        if self.disconnected:
            raise ConnectionLost
        await self._wait_if_silent()
        if self._lost:
            raise SessionLost
        if self.ensemble.strikes(self.ensemble.faults.flap):
            self.flap()

    async def _wait_if_silent(self) -> None:
        if self._silent:
            await trio.sleep(self.ensemble.session_timeout_s * REQUEST_TIMEOUT_SHARE)
            self._wakes.wake_all()
            raise ConnectionLost

    def _show_the_newest(self) -> None:
        self.lagging = False
        self._catch_up()

    def _catch_up(self) -> None:
        for effects in self.ensemble.history[self._position :]:
            self._tree.apply(effects)
            self._wakes.wake(touched_by(effects))
        self._position = len(self.ensemble.history)
