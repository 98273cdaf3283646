"""The trio shell around all connections: accepts them, bounds their number, watches their deadlines, stops in order.

Why it exists: the life of connections is here. Their turns are in `kafkawire.server.hub`, one connection is in
`kafkawire.server.session`, their deadlines are in `kafkawire.server.reaper`.

Order of shutdown (RULES L7): the listeners close. Every session starts nothing more and answers its requests; a parked
long poll is asked to answer now. Requests that are not done after the grace period are cancelled.

The server does not open ports (`transport.open_listener` does, before anything is served), and does not know requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
import trio

from kafkawire.requests.started import RequestStarter
from kafkawire.server.byte_budget import UNANSWERED_MAX_BYTES, ByteBudget
from kafkawire.server.handshakes import Handshakes, Slots
from kafkawire.server.hub import Hub, Rounds
from kafkawire.server.reaper import Reaper
from kafkawire.server.session import Session
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import Accepted, Listener, Transport
from kafkawire.wire.connection import CloseReason, ConnectionLimits
from kafkawire.wire.connection_info import ConnectionInfo

if TYPE_CHECKING:  # loads a library that a broker without TLS does not need
    from kafkawire.requests.context import Elsewhere
    from kafkawire.security.tls.listener_tls import ListenerTls

ACCEPT_PAUSE_S = 0.1  # after accept failed, for example for lack of descriptors

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ServerLimits:
    """Bounds over all connections. Defaults are Kafka's except for the queue, which Kafka leaves unbounded.

    The maximum numbers of connections may change at any time; open connections stay.
    """

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_unauthenticated: int = 1000  # TLS handshakes under way, for each listener
    queued_max_request_size_bytes: int = 512 * 1024 * 1024
    unanswered_max_size_bytes: int = UNANSWERED_MAX_BYTES
    shutdown_grace_ms: int = 10_000


async def no_crypto(job: Callable[[], Any]) -> Any:
    """The crypto thread of a server without TLS."""
    raise AssertionError(f"no listener speaks TLS, but {job} is to run")


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of the listeners that speak it, by listener name. `crypto` runs a job in the crypto thread."""

    listeners: Mapping[str, ListenerTls] = field(default_factory=dict)
    crypto: Elsewhere = no_crypto


async def serve(
    listeners: Mapping[str, Sequence[Listener]],
    starter: RequestStarter,
    limits: ServerLimits,
    *,
    stop: trio.Event,
    stats: ServerStats | None = None,
    rounds: Rounds | None = None,
    tls: ServerTls | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the listeners, each under its listener name, until `stop` is set and the connections are gone.

    `rounds`: records that requests append are written when a turn has started the requests. `tls`: for the listeners
    that speak it. Reports itself started when it accepts. A cancellation closes everything at once. Either way the
    listeners are closed.
    """
    stats = ServerStats() if stats is None else stats
    await _Server(starter, limits, stats, rounds, tls or ServerTls()).serve(listeners, stop, task_status)


class _Server:
    """The `kafkawire.server.session.Host` of its sessions."""

    def __init__(
        self,
        starter: RequestStarter,
        limits: ServerLimits,
        stats: ServerStats,
        rounds: Rounds | None,
        tls: ServerTls,
    ) -> None:
        self._starter = starter
        self._limits = limits
        self._stats = stats
        budget = ByteBudget(limits.queued_max_request_size_bytes, limits.unanswered_max_size_bytes)
        self._hub = Hub(budget, stats, rounds)
        self._reaper = Reaper()
        self._tls = tls.listeners
        self._slots = {name: Slots(limits.max_unauthenticated) for name in tls.listeners}
        self._handshakes = Handshakes(self._hub, self._reaper, tls.crypto, self._open_session, self._note_gone)
        self._sessions: dict[Session, None] = {}
        self._per_ip: dict[str, int] = {}
        self._session_ended = trio.lowlevel.ParkingLot()
        self._tasks: trio.Nursery | None = None

    async def serve(
        self, listeners: Mapping[str, Sequence[Listener]], stop: trio.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        try:
            async with trio.open_nursery() as self._tasks:
                self._tasks.start_soon(self._hub.run)
                self._tasks.start_soon(self._reaper.run)
                if self._tls:
                    self._tasks.start_soon(self._handshakes.run)
                try:
                    async with trio.open_nursery() as acceptors:
                        for name, listener in _each(listeners):
                            acceptors.start_soon(self._accept, name, listener)
                        task_status.started()
                        await stop.wait()
                        acceptors.cancel_scope.cancel()
                finally:
                    for _, listener in _each(listeners):
                        listener.close()
                await self._drain()
                self._tasks.cancel_scope.cancel()
        finally:
            self._handshakes.close()
            for session in [*self._sessions]:
                session.close(CloseReason.SHUTDOWN)
            self._hub.close()

    async def _accept(self, name: str, listener: Listener) -> None:
        is_failing = False
        while True:
            try:
                if name in self._slots:
                    await self._slots[name].available()
                accepted = await listener.accept()
                if self._admits(accepted.peer_host):
                    self._open(name, accepted)
                else:
                    accepted.transport.close()
            except OSError as error:
                self._stats.accept_failures += 1
                if not is_failing:
                    _log.warning("cannot accept connections, trying again", listener=name, error=str(error))
                is_failing = True
                await trio.sleep(ACCEPT_PAUSE_S)
                continue
            is_failing = False

    def _admits(self, peer_host: str) -> bool:
        """Whether the limits allow one more connection. If so, it is counted."""
        if self._stats.connections_open >= self._limits.max_connections:
            self._stats.connections_refused_total += 1
            return False
        of_this_ip = self._per_ip.get(peer_host, 0)
        if of_this_ip >= self._limits.max_connections_per_ip:
            self._stats.connections_refused_per_ip += 1
            return False
        self._stats.connections_accepted += 1
        self._stats.connections_open += 1
        self._per_ip[peer_host] = of_this_ip + 1
        return True

    def _open(self, name: str, accepted: Accepted) -> None:
        info = ConnectionInfo(name, accepted.peer_host, accepted.local_address)
        if name not in self._tls:
            self._open_session(accepted.transport, info)
        elif not self._handshakes.begin(accepted.transport, info, self._tls[name], self._slots[name]):
            accepted.transport.close()
            self._stats.closed[CloseReason.CROWDED_ADDRESS] += 1
            self._note_gone(info)

    def _open_session(self, transport: Transport, info: ConnectionInfo) -> None:
        self._hub.begin()
        session = Session(transport, info, self._starter, self._limits.connection, self._hub, self)
        self._sessions[session] = None
        self._reaper.watch(session)
        try:
            session.open()
        except OSError:  # no descriptor for the poller
            session.close(CloseReason.BROKEN)
            raise

    # Called by sessions

    def spawn(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(work, *arguments)

    def note_busy(self, session: Session) -> None:
        self._reaper.watch(session)

    def note_ended(self, session: Session) -> None:
        self._reaper.forget(session)
        del self._sessions[session]
        self._note_gone(session.info)
        self._session_ended.unpark_all()

    def _note_gone(self, info: ConnectionInfo) -> None:
        """Count a connection no longer."""
        host = info.peer_host
        self._stats.connections_open -= 1
        self._per_ip[host] -= 1
        if self._per_ip[host] == 0:
            del self._per_ip[host]

    # The end

    async def _drain(self) -> None:
        self._hub.begin()
        self._handshakes.close()
        for session in [*self._sessions]:
            session.drain()
        with trio.move_on_after(self._limits.shutdown_grace_ms / 1000):
            while self._sessions:
                await self._session_ended.park()


def _each(listeners: Mapping[str, Sequence[Listener]]) -> list[tuple[str, Listener]]:
    return [(name, listener) for name, bound in listeners.items() for listener in bound]
