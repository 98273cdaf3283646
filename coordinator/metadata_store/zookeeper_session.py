"""A ZooKeeper session: kazoo's client, whose three threads report to trio's loop.

kazoo queues requests that are made without a connection and sends them later, begins a new session by itself when one
has expired, and calls back on threads of its own. Here a request goes out on the present connection or fails at once, a
session that is over stays over, and all reports enter the loop in the order in which they came.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from random import SystemRandom
from typing import TYPE_CHECKING, Any, ClassVar, Final

import outcome
import structlog
import trio
from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, SessionExpiredError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from coordinator.metadata_store.statistics import SessionState, SessionStatistics
from coordinator.metadata_store.store import ConnectionLost, Node
from coordinator.metadata_store.zookeeper_connection import Handler, ReceiveLimit, ServerConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kazoo.protocol.states import WatchedEvent

log = structlog.get_logger(__name__)

IN_FLIGHT_MAX: Final = 100  # requests of one session; one of many reads counts as one
REQUEST_TIMEOUT_SHARE: Final = 2 / 3  # of the session's time: kazoo's read timeout, and that of Kafka's client
CLOSE_WITHIN_S: Final = 5.0  # then its threads are left alone: they end with the process
RECONNECT_PAUSES_S: Final = (0.05, 1.0)  # the first and the longest, between two rounds of all servers
# kazoo logs its requests, credentials too: so this logger has no parent, whose level may be lower. Only kazoo's
# errors are news.
KAZOO_LOG: Final = logging.Logger("kazoo", logging.ERROR)


STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.CONNECTING,
    KazooState.LOST: SessionState.CLOSED,
}


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of the ensemble, and how to talk to them; times in ms."""

    hosts: str
    count: int
    session_timeout_ms: int
    credentials: str | None = field(repr=False)

    @property
    def request_timeout_s(self) -> float:
        """How long a request waits for its answer, in seconds: as long as a connected server may be silent."""
        return self.session_timeout_ms / 1000 * REQUEST_TIMEOUT_SHARE


@dataclass(frozen=True, slots=True)
class ReadMany:
    """ZooKeeper's multiRead (3.6): many nodes with one request, about ten times as fast as one by one.

    The answer has a Node, or kazoo's exception, for each path; with GetChildren, the names of its children.
    """

    paths: Sequence[str]
    request_type: type[GetData | GetChildren] = GetData

    type: ClassVar[int] = 22
    ERROR: ClassVar[int] = -1

    def serialize(self) -> bytes:
        """The bytes of the request, as kazoo sends them."""
        header = multiheader_struct.pack(self.request_type.type, 0, -1)
        end = multiheader_struct.pack(-1, 1, -1)
        return b"".join([*(header + self.request_type(path, None).serialize() for path in self.paths), end])

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Node | list[str] | Exception]:
        """The answer for each path, read from the reply's bytes at `offset`."""
        found: list[Node | list[str] | Exception] = []
        while True:
            kind, is_end, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if is_end:
                return found
            if kind == cls.ERROR:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                found.append(EXCEPTIONS[code]())
            elif kind == GetChildren.type:
                names, offset = _read_names(data, offset)
                found.append(names)
            else:
                value, offset = read_buffer(data, offset)
                version = stat_struct.unpack_from(data, offset)[4]
                offset += stat_struct.size
                found.append(Node(value or b"", version))


def _read_names(data: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(data, offset)
    offset += int_struct.size
    names: list[str] = []
    for _ in range(count):
        name, offset = read_string(data, offset)
        names.append(name)
    return names, offset


class Session:
    """A session from `begin` to `end`.

    `on_touched` is called with the path that a watch was set on; None: all nodes may have changed.
    """

    def __init__(
        self,
        servers: Servers,
        on_touched: Callable[[str | None], object],
        limit: ReceiveLimit,
        statistics: SessionStatistics,
    ) -> None:
        self._statistics = statistics
        self._is_ending = False
        self._token = trio.lowlevel.current_trio_token()
        self._on_touched = on_touched
        self._in_flight = trio.Semaphore(IN_FLIGHT_MAX)
        self._changed = trio.Event()
        self._request_timeout_s = servers.request_timeout_s
        self._client = _Client(servers, limit)
        self._client.add_listener(self._on_state)

    async def begin(self, timeout_s: float) -> None:
        """Begin the session. Raises ConnectionLost if no server takes it on within `timeout_s` seconds."""
        with trio.move_on_after(timeout_s):
            self._client.start_async()
            while not (self._client.connected or self._client.is_over):
                self._changed = trio.Event()
                await self._changed.wait()
            return
        raise ConnectionLost

    async def end(self) -> None:
        """End the session. Ephemeral nodes go at once if a server can be told, otherwise when the session has timed
        out. Idempotent."""
        self._is_ending = True
        with trio.CancelScope(shield=True), trio.move_on_after(CLOSE_WITHIN_S):
            await trio.to_thread.run_sync(self._client.leave, abandon_on_cancel=True)

    async def ask(self, request: object) -> Any:
        """The answer to one of kazoo's requests. Raises kazoo's exceptions, ConnectionLoss also for an answer that did
        not come within the request timeout: a server may answer pings and nothing else."""
        with trio.move_on_after(self._request_timeout_s):
            await self._in_flight.acquire()
            reply = _Reply(self._token, self._in_flight.release)
            self._client._call(request, reply)
            return await reply.wait()
        raise ConnectionLoss

    def on_watch(self, event: WatchedEvent) -> None:
        """Callback of kazoo's watches, called on a thread of kazoo's own."""
        if event.path is not None:  # otherwise the connection was lost, of which `_on_state` is told
            self._soon(self._on_touched, event.path)

    def _on_state(self, state: KazooState) -> None:
        self._soon(self._take_state, state)

    def _take_state(self, state: KazooState) -> None:
        self._changed.set()
        if not self._is_ending:
            self._statistics.note(STATES[state])
        if state is not KazooState.CONNECTED:
            self._on_touched(None)
        log.info("zookeeper connection changed", state=str(state).lower())

    def _soon(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *arguments)


class _Reply:
    """The reply to a request, settled by kazoo's threads: its AsyncResult without locks. If it settles twice, the first
    counts."""

    def __init__(self, token: trio.lowlevel.TrioToken, on_settled: Callable[[], object]) -> None:
        self._token = token
        self._on_settled = on_settled
        self._arrived = trio.Event()
        self._outcome: outcome.Outcome[Any] | None = None

    def set(self, value: object = None) -> None:
        self._settle(outcome.Value(value))

    def set_exception(self, error: BaseException) -> None:
        self._settle(outcome.Error(error))

    def _settle(self, result: outcome.Outcome[Any]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._arrive, result)

    def _arrive(self, result: outcome.Outcome[Any]) -> None:
        if self._outcome is None:
            self._outcome = result
            self._arrived.set()
            self._on_settled()

    async def wait(self) -> Any:
        """The answer. If the caller is cancelled, the request is still in flight until it is settled."""
        await self._arrived.wait()
        assert self._outcome is not None
        return self._outcome.unwrap()


class _Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client, which sends a request at once or not at all."""

    def __init__(self, servers: Servers, limit: ReceiveLimit) -> None:
        timeout_s = servers.session_timeout_ms / 1000
        first_pause_s, longest_pause_s = RECONNECT_PAUSES_S
        self._gate = threading.Lock()  # keeps the connection's state between check and call
        self.is_over = False
        hosts = servers.hosts.split(",")
        super().__init__(
            hosts=",".join(SystemRandom().sample(hosts, len(hosts))),
            # With a new order for each round, the first one might be the last that failed: a server that stands still
            # takes two thirds of the session until it is left, and would have the rest of it for its handshake.
            randomize_hosts=False,
            timeout=timeout_s,
            handler=Handler(timeout_s / servers.count, limit),
            auth_data=[("digest", servers.credentials)] if servers.credentials else None,
            connection_retry=KazooRetry(max_tries=-1, delay=first_pause_s, max_delay=longest_pause_s),
            logger=KAZOO_LOG,
        )
        self._connection = ServerConnection(self, self._conn_retry.copy(), logger=KAZOO_LOG)

    def leave(self) -> None:
        """Blocks until the threads have ended."""
        self.stop()
        self.close()

    def _call(self, request: object, reply: _Reply) -> None:
        with self._gate:
            if self.is_over:
                reply.set_exception(SessionExpiredError())
            elif not self.connected:
                reply.set_exception(ConnectionLoss())
            else:
                super()._call(request, reply)

    def _session_callback(self, state: object) -> None:
        with self._gate:
            self.is_over = self.is_over or (state in CLOSED_STATES and state != self.client_state)
            super()._session_callback(state)
