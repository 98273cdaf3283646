"""An ensemble in memory that misbehaves as real ones may, on demand or by a seed.

Each client reads its own replica of the tree, which may lag behind until the client syncs; wake-ups come when the
replica advances, so they are late together with it, as in ZooKeeper. Requests and replies can be lost; a client can be
paused while its session ends. Without faults asked for it behaves, and then also serves as the store of a whole broker
in memory that is stopped and started again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

import trio

from coordinator.metadata.store import ConnectionLost, Node, Operation, SessionLost, Wake
from coordinator.metadata.tree import Effect, NodeTree
from coordinator.metadata.wakes import Wakes, children_of, touched_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, drawn per operation from the ensemble's random source."""

    request_lost: float = 0.0
    reply_lost: float = 0.0
    replica_lags: float = 0.0


class Loss(Enum):
    """What happens to a multi; the client learns nothing of it."""

    NOTHING = "nothing"
    REQUEST = "the request: it is not done"
    REPLY = "the reply: it is done"
    REPLY_AND_LINE = "the reply, and from then on the connection"


class FakeEnsemble:
    """The servers: what is committed, and who is connected. Outlives its clients."""

    def __init__(self, random: Random | None = None, faults: Faults | None = None) -> None:
        self.random = random or Random(0)  # noqa: S311 (a seed, to repeat a run)
        self.faults = faults or Faults()
        self.history: list[list[Effect]] = []
        self._tree = NodeTree()
        self._clients: dict[int, FakeStore] = {}
        self._sessions_given = 0

    def connect(self) -> FakeStore:
        """A new client with a session of its own."""
        return FakeStore(self)

    def expire(self, client: FakeStore) -> None:
        """Ends the client's session: its ephemeral nodes go now, it notices once it runs."""
        if self._clients.pop(client.session_id, None) is not None:
            self._commit(self._tree.stage_end_of_session(client.session_id))
            client.lose_session()

    def settle(self) -> None:
        """Lets every replica that is not held back catch up, and late wake-ups with it."""
        for client in self._clients.values():
            client.advance()

    def new_session(self, client: FakeStore) -> int:
        """Registers the client under a new session id."""
        self._sessions_given += 1
        self._clients[self._sessions_given] = client
        return self._sessions_given

    def multi(self, operations: Sequence[Operation], session_id: int) -> None:
        """Commits a client's multi or raises what it met."""
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


class FakeStore:
    """A `MetadataStore`. The public attributes are the levers of a test."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        self.ensemble = ensemble
        self.script: deque[Loss] = deque()  # of the next multis, before chance
        self.lagging = False  # reads and wake-ups stand still until the next sync
        self._disconnected = False
        self._tree = NodeTree()
        self._position = 0
        self._wakes = Wakes()
        self._running = trio.Event()
        self._running.set()
        self._lost = False
        self.session_id = ensemble.new_session(self)
        self._catch_up()

    @property
    def disconnected(self) -> bool:
        """Whether no server can be reached."""
        return self._disconnected

    @disconnected.setter
    def disconnected(self, disconnected: bool) -> None:
        self._disconnected = disconnected
        if disconnected:
            self._wakes.tell_all()

    def pause(self) -> None:
        """The process stands still, as under SIGSTOP."""
        self._running = trio.Event()

    def resume(self) -> None:
        """The process goes on, and learns what happened to its session."""
        self._running.set()
        if self._lost:
            self._wakes.tell_all()
        self.advance()

    def lose_session(self) -> None:
        """Called by the ensemble when the session has ended."""
        self._lost = True
        if self._running.is_set():
            self._wakes.tell_all()

    def advance(self) -> None:
        """Brings the replica up to date unless it is held back."""
        if not (self.lagging or self._lost or self.disconnected) and self._running.is_set():
            self._catch_up()

    async def get(self, path: str) -> Node:
        """See `MetadataStore`."""
        await self._enter()
        return self._tree.get(path)

    async def exists(self, path: str, wake: Wake | None = None) -> bool:
        """See `MetadataStore`."""
        await self._enter()
        self._wakes.arm(path, wake)
        return self._tree.find(path) is not None

    async def children(self, path: str, wake: Wake | None = None) -> list[str]:
        """See `MetadataStore`."""
        await self._enter()
        names = self._tree.children(path)
        self._wakes.arm(children_of(path), wake)
        return names

    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """See `MetadataStore`."""
        await self._enter()
        return [self._tree.children(path) if self._tree.find(path) is not None else [] for path in paths]

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """See `MetadataStore`."""
        await self._enter()
        return [self._tree.find(path) for path in paths]

    async def read_children(self, path: str) -> Mapping[str, Node]:
        """See `MetadataStore`."""
        await self._enter()
        return {name: self._tree.get(f"{path}/{name}") for name in self._tree.children(path)}

    async def multi(self, operations: Sequence[Operation]) -> None:
        """See `MetadataStore`. After a lost reply reads are stale until `sync`, as after a reconnect."""
        await self._enter()
        loss = self.script.popleft() if self.script else self._chance()
        if loss is Loss.NOTHING:
            try:
                self.ensemble.multi(operations, self.session_id)
            finally:
                self._catch_up()  # one that failed had its place in the order of all writes too
            return
        self._wakes.tell_all()
        if loss is Loss.REQUEST:
            raise ConnectionLost
        self.lagging = True
        self.ensemble.multi(operations, self.session_id)
        self.disconnected = self.disconnected or loss is Loss.REPLY_AND_LINE
        raise ConnectionLost

    def _chance(self) -> Loss:
        if self.ensemble.strikes(self.ensemble.faults.request_lost):
            return Loss.REQUEST
        return Loss.REPLY if self.ensemble.strikes(self.ensemble.faults.reply_lost) else Loss.NOTHING

    async def sync(self) -> None:
        """See `MetadataStore`."""
        await self._enter()
        self.lagging = False
        self._catch_up()

    async def renew(self) -> None:
        """See `MetadataStore`."""
        await trio.lowlevel.checkpoint()
        await self._running.wait()
        if self.disconnected:
            raise ConnectionLost
        self.ensemble.expire(self)
        self._lost, self.lagging = False, False
        self.session_id = self.ensemble.new_session(self)
        self._catch_up()

    async def close(self) -> None:
        """See `MetadataStore`."""
        await trio.lowlevel.checkpoint()
        self.ensemble.expire(self)

    async def _enter(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._running.wait()
        if self._lost:
            raise SessionLost
        if self.disconnected:
            raise ConnectionLost

    def _catch_up(self) -> None:
        for effects in self.ensemble.history[self._position :]:
            self._tree.apply(effects)
            self._wakes.tell(touched_by(effects))
        self._position = len(self.ensemble.history)
