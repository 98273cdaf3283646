"""The peer connections to one broker for one purpose, one after the other: callers do not see which one carries a
request.

A connection is opened when there is a request, and stays. It ends when a request is not answered in time, and when
either broker has registered again: a connection is between two registrations. The requests under way fail then, and
whether they were executed is unknown. The next connection has a greater number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from kafkawire.peers.errors import SentBy
from kafkawire.peers.frames import FrameStream
from kafkawire.peers.handshake import LINK_ERRORS, shake_hands
from kafkawire.peers.in_flight import InFlightRequests, failed_reply
from kafkawire.security.link_claim import LinkClaim, LinkNumber
from kafkawire.security.scram import NONCE_SIZE_BYTES, Salted, nonce_of

if TYPE_CHECKING:
    from random import Random

    from coordinator.api import Future
    from kafkawire.wire.message import Message

MIB: Final = 1024 * 1024

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]  # to a host and a port; raises OSError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLimits:
    """Limits of all peer connections. `backoff_ms`: from the end of a connection to the next attempt, twice as long
    each time."""

    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000  # socket.connection.setup.timeout.ms
    backoff_ms: int = 50  # reconnect.backoff.ms
    backoff_max_ms: int = 1_000  # reconnect.backoff.max.ms
    requests_max: int = 1_000
    reply_max_bytes: int = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDeps:
    """Dependencies of all peer connections of a broker. `next_number` returns a greater number each time."""

    broker_id: int
    connect: Connect
    salted: Salted
    random: Random
    next_number: Callable[[], LinkNumber]
    limits: PeerLimits


class Peer(NamedTuple):
    """The other broker as it is registered."""

    host: str
    port: int
    incarnation: bytes


class _ConnectionOver(Exception):
    """The end of a connection for a reason of this broker."""


class PeerConnection:
    """The connections for one purpose; the caller runs `run` in a task."""

    def __init__(self, broker_id: int, purpose: str, deps: ConnectionDeps) -> None:
        self._broker_id = broker_id
        self._purpose = purpose
        self._deps = deps
        self._peer: Peer | None = None
        self._broker_epoch = 0
        self._requests = InFlightRequests(f"broker-{deps.broker_id}-{purpose}", deps.limits.requests_max)
        self._has_news = trio.Event()
        self._is_wanted = False
        self._is_connected = False
        self._last_connected: SentBy | None = None  # the last connection whose handshake succeeded
        self._attempt: trio.CancelScope | None = None
        self._reason = ""  # why the last connection ended, or failed to open

    def follow(self, peer: Peer | None, broker_epoch: int) -> None:
        """Adopt the present registration of the other broker (None if it is not up), and this broker's epoch."""
        if (peer, broker_epoch) == (self._peer, self._broker_epoch):
            return
        self._peer, self._broker_epoch = peer, broker_epoch
        if self._attempt is not None:
            self._attempt.cancel()

    def ask(self, request: Message, version: int) -> Future[Message]:
        """Send a request; see `Links.call`."""
        if self._peer is None:
            return failed_reply(f"broker {self._broker_id} is away")
        deadline_s = trio.current_time() + self._deps.limits.request_timeout_ms / 1000
        answer = self._requests.ask(request, version, deadline_s)
        self._has_news.set()
        return answer

    def open(self) -> None:
        """Open a connection, even if there is no request."""
        if not self._is_connected:
            self._is_wanted = True
            self._has_news.set()

    def is_over(self, sent: SentBy) -> bool:
        """Whether that connection is over; see `Links.is_over`."""
        if self._peer is None or self._peer.incarnation != sent.incarnation:
            return True
        return self._last_connected is not None and self._last_connected.number > sent.number

    async def run(self) -> None:
        """Open connections as they are needed, for as long as the broker lives."""
        pause_ms = self._deps.limits.backoff_ms
        while True:
            await self._wait_until_wanted()
            if self._peer is None:
                self._requests.fail_waiting(f"broker {self._broker_id} is away")
                self._is_wanted = False
                continue
            connected_before = self._last_connected
            await self._serve_once(self._peer)
            if self._last_connected is not connected_before:
                pause_ms = self._deps.limits.backoff_ms
            await trio.sleep(pause_ms / 1000 * self._deps.random.uniform(0.8, 1.2))
            pause_ms = min(2 * pause_ms, self._deps.limits.backoff_max_ms)

    async def _wait_until_wanted(self) -> None:
        while not (self._is_wanted or self._requests.has_waiting):
            self._has_news = trio.Event()
            await self._has_news.wait()

    async def _serve_once(self, peer: Peer) -> None:
        """Serve one connection, or attempt to open one."""
        number = self._deps.next_number()
        link = SentBy(self._broker_id, peer.incarnation, self._purpose, number)
        reason = "the other broker, or this one, has registered anew"
        with trio.CancelScope() as self._attempt:
            try:
                await self._serve(peer, link)
            except* (
                OSError,
                trio.BrokenResourceError,
                trio.ClosedResourceError,
                *LINK_ERRORS,
                _ConnectionOver,
            ) as group:
                reason = _reason(group)
        self._attempt, self._is_connected = None, False
        if self._last_connected is link or reason != self._reason:  # repeated failures for one reason are logged once
            _log.info("peer connection closed", broker=self._broker_id, purpose=self._purpose, reason=reason)
        self._reason = reason
        self._requests.fail_sent(reason, link)
        if self._last_connected is not link:
            self._requests.fail_waiting(reason)

    async def _serve(self, peer: Peer, link: SentBy) -> None:
        limits = self._deps.limits
        stream: trio.abc.Stream | None = None
        try:
            with trio.move_on_after(limits.connect_timeout_ms / 1000) as connecting:
                stream = await self._deps.connect(peer.host, peer.port)
                frames = FrameStream(stream, limits.reply_max_bytes)
                await self._shake_hands(frames, peer, link)
            if connecting.cancelled_caught:
                raise _ConnectionOver(f"no link within {limits.connect_timeout_ms} ms")
            self._last_connected, self._is_connected, self._is_wanted = link, True, False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, frames)
                nursery.start_soon(self._receive, frames)
                nursery.start_soon(self._watch)
        finally:
            if stream is not None:
                await trio.aclose_forcefully(stream)

    async def _shake_hands(self, frames: FrameStream, peer: Peer, link: SentBy) -> None:
        deps = self._deps
        claim = LinkClaim(deps.broker_id, self._purpose, link.number, self._broker_id, peer.incarnation)
        await shake_hands(frames, claim, deps.salted, nonce_of(deps.random.randbytes(NONCE_SIZE_BYTES)))

    async def _send(self, frames: FrameStream) -> None:
        while True:
            await self._wait_until_wanted()
            await frames.send(self._requests.take())

    async def _receive(self, frames: FrameStream) -> None:
        while True:
            self._requests.settle_oldest(await frames.receive())

    async def _watch(self) -> None:
        """End the connection when a request is overdue. A request that is made during a pause has a deadline after the
        next look."""
        timeout_s = self._deps.limits.request_timeout_ms / 1000
        while True:
            deadline_s, now_s = self._requests.deadline_s, trio.current_time()
            if deadline_s <= now_s:
                raise _ConnectionOver(f"no answer within {self._deps.limits.request_timeout_ms} ms")
            await trio.sleep_until(min(deadline_s, now_s + timeout_s))


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """The text of the first error."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
