"""The trio shell around all connections: accepts them, bounds their number, watches their deadlines, stops in order.

Why it exists: everything that concerns more than one connection is here; one connection is `kafkawire.server.session`.

Order of shutdown (RULES L7): the listeners close, every session starts nothing more and answers what it has (a parked
long poll is asked to answer now), and what is not done after the grace period is cancelled.

It refuses to open ports (`transport.open_listener` does, before anything is served) and to know what a request is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog
import trio

from kafkawire.requests.started import RequestStarter
from kafkawire.server.byte_budget import ByteBudget
from kafkawire.server.session import Session
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import Accepted, Listener
from kafkawire.server.turnstile import Turnstile
from kafkawire.wire.connection import ConnectionInfo, ConnectionLimits

ACCEPT_PAUSE_S = 0.1  # after accept failed, as when descriptors ran out
ROUND_REPLIES_PER_TURN = 64  # before other tasks get their turn
REAPER_INTERVAL_S = 1.0  # how late a deadline may be noticed

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ServerLimits:
    """Bounds over all connections; defaults are Kafka's but for the queue, which Kafka leaves unbounded.

    The numbers of connections may be changed at any time: who is connected already stays.
    """

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    queued_max_request_size_bytes: int = 512 * 1024 * 1024
    shutdown_grace_ms: int = 10_000


async def serve(
    listeners: Mapping[str, Sequence[Listener]],
    dispatcher: RequestStarter,
    limits: ServerLimits,
    *,
    stop: trio.Event,
    stats: ServerStats | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves the listeners, each under its listener name, until `stop` is set and the connections are gone.

    Reports itself started when it accepts. Cancelling it closes everything at once. Either way the listeners are
    closed.
    """
    await _Server(dispatcher, limits, stats if stats is not None else ServerStats()).serve(listeners, stop, task_status)


class _Server:
    def __init__(self, dispatcher: RequestStarter, limits: ServerLimits, stats: ServerStats) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._stats = stats
        self._budget = ByteBudget(limits.queued_max_request_size_bytes)
        self._sessions: set[Session] = set()
        self._per_ip: dict[str, int] = {}
        self._session_ended = trio.lowlevel.ParkingLot()
        self._ready: dict[Session, None] = {}
        self._turnstile = Turnstile()
        self._answer_parked = trio.lowlevel.ParkingLot()

    async def serve(
        self, listeners: Mapping[str, Sequence[Listener]], stop: trio.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        async with trio.open_nursery() as sessions:
            sessions.start_soon(self._reap)
            sessions.start_soon(self._answer)
            sessions.start_soon(self._turnstile.serve)
            try:
                async with trio.open_nursery() as acceptors:
                    for name, listener in _each(listeners):
                        acceptors.start_soon(self._accept, name, listener, sessions)
                    task_status.started()
                    await stop.wait()
                    acceptors.cancel_scope.cancel()
            finally:
                for _, listener in _each(listeners):
                    listener.close()
            await self._drain()
            sessions.cancel_scope.cancel()

    async def _accept(self, name: str, listener: Listener, sessions: trio.Nursery) -> None:
        is_failing = False
        while True:
            try:
                accepted = await listener.accept()
            except OSError as error:
                self._stats.accept_failures += 1
                if not is_failing:
                    _log.warning("cannot accept connections, trying again", listener=name, error=str(error))
                is_failing = True
                await trio.sleep(ACCEPT_PAUSE_S)
                continue
            is_failing = False
            if self._admits(accepted.peer_host):
                session = self._new_session(name, accepted)
                self._sessions.add(session)  # before its task runs, so that a shutdown in between finds it
                sessions.start_soon(self._run_session, session)
            else:
                accepted.transport.close()

    def _admits(self, peer_host: str) -> bool:
        """Counts the connection in when the limits allow one more."""
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

    def _new_session(self, name: str, accepted: Accepted) -> Session:
        info = ConnectionInfo(name, accepted.peer_host, accepted.local_address)
        limits = self._limits.connection
        return Session(
            accepted.transport,
            info,
            self._dispatcher,
            limits,
            self._budget,
            self._stats,
            self._is_ready,
            self._turnstile,
        )

    async def _run_session(self, session: Session) -> None:
        host = session.info.peer_host
        try:
            await session.run()
        finally:
            self._sessions.remove(session)
            self._stats.connections_open -= 1
            self._per_ip[host] -= 1
            if self._per_ip[host] == 0:
                del self._per_ip[host]
            self._session_ended.unpark_all()

    def _is_ready(self, session: Session) -> None:
        """Called when a round of the engine is done, for each of its requests: replies are sent behind all of them."""
        self._ready[session] = None
        if self._answer_parked:
            self._answer_parked.unpark_all()

    async def _answer(self) -> None:
        """Sends what became ready together: one task wakes up for a round, not one for every connection."""
        while True:
            while not self._ready:
                await self._answer_parked.park()
            ready, self._ready = self._ready, {}
            before = self._stats.replies
            for session in ready:
                session.send_ready()
                if self._stats.replies - before >= ROUND_REPLIES_PER_TURN:
                    before = self._stats.replies
                    await trio.lowlevel.checkpoint()

    async def _reap(self) -> None:
        """The only timer of all connections."""
        while True:
            await trio.sleep(REAPER_INTERVAL_S)
            now_s = trio.current_time()
            for session in self._sessions:
                session.close_if_overdue(now_s)
                if self._budget.is_exhausted:  # a long poll may last as long as its client says: nobody waits for it
                    session.answer_long_poll()

    async def _drain(self) -> None:
        for session in self._sessions:
            session.drain()
        with trio.move_on_after(self._limits.shutdown_grace_ms / 1000):
            while self._sessions:
                await self._session_ended.park()


def _each(listeners: Mapping[str, Sequence[Listener]]) -> list[tuple[str, Listener]]:
    return [(name, listener) for name, bound in listeners.items() for listener in bound]
