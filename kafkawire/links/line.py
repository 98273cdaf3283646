"""The links to one broker for one purpose, one after the other: whoever asks does not care which one it is.

A link is opened when something is to be asked, and stays. It ends with the connection, when a request is not answered
in time, and when the other broker, or this one, has registered anew: a link is between two registrations. Whatever was
under way fails then; whether it was executed is not known. The next link has a greater number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from kafkawire.links.conversation import Conversation, failed
from kafkawire.links.errors import SentBy
from kafkawire.links.frames import FrameStream
from kafkawire.links.greeting import LINK_ERRORS, greet
from kafkawire.security.link_claim import LinkClaim, LinkNumber
from kafkawire.security.scram import NONCE_SIZE_BYTES, Salted, nonce_of

if TYPE_CHECKING:
    from random import Random

    from coordinator.api import Pending
    from kafkawire.wire.message import Message

MIB: Final = 1024 * 1024

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]  # to a host and a port; raises OSError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLimits:
    """Those of all lines. `backoff_ms`: between a link that is over and the next attempt, twice as long each time."""

    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000  # socket.connection.setup.timeout.ms
    backoff_ms: int = 50  # reconnect.backoff.ms
    backoff_max_ms: int = 1_000  # reconnect.backoff.max.ms
    asked_max: int = 1_000
    reply_max_bytes: int = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWorld:
    """What is around all lines of a broker. `next_number` is above all that it has given."""

    broker_id: int
    connect: Connect
    salted: Salted
    random: Random
    next_number: Callable[[], LinkNumber]
    limits: LineLimits


class Peer(NamedTuple):
    """A broker as it is registered."""

    host: str
    port: int
    incarnation: bytes


class _LinkOver(Exception):
    """A link that ends for a reason of ours."""


class Line:
    """Life: `run` in a task."""

    def __init__(self, broker_id: int, purpose: str, world: LineWorld) -> None:
        self._broker_id = broker_id
        self._purpose = purpose
        self._world = world
        self._peer: Peer | None = None
        self._broker_epoch = 0
        self._conversation = Conversation(f"broker-{world.broker_id}-{purpose}", world.limits.asked_max)
        self._has_news = trio.Event()
        self._is_wanted = False
        self._is_linked = False
        self._linked: SentBy | None = None  # the last link that the other broker has let in
        self._attempt: trio.CancelScope | None = None
        self._reason = ""  # why the last link is over, or did not come to be

    def follow(self, peer: Peer | None, broker_epoch: int) -> None:
        """The cluster as it is now: where the other broker is, if it is up, and this one's own epoch."""
        if (peer, broker_epoch) == (self._peer, self._broker_epoch):
            return
        self._peer, self._broker_epoch = peer, broker_epoch
        if self._attempt is not None:
            self._attempt.cancel()

    def ask(self, request: Message, version: int) -> Pending[Message]:
        """See `Links.call`."""
        if self._peer is None:
            return failed(f"broker {self._broker_id} is away")
        deadline_s = trio.current_time() + self._world.limits.request_timeout_ms / 1000
        answer = self._conversation.ask(request, version, deadline_s)
        self._has_news.set()
        return answer

    def open(self) -> None:
        """Have a link, though there is nothing to ask."""
        if not self._is_linked:
            self._is_wanted = True
            self._has_news.set()

    def is_over(self, sent: SentBy) -> bool:
        """See `Links.is_over`."""
        if self._peer is None or self._peer.incarnation != sent.incarnation:
            return True
        return self._linked is not None and self._linked.number > sent.number

    async def run(self) -> None:
        """Opens links as they are needed, for as long as the broker lives."""
        pause_ms = self._world.limits.backoff_ms
        while True:
            await self._until_wanted()
            if self._peer is None:
                self._conversation.unreachable(f"broker {self._broker_id} is away")
                self._is_wanted = False
                continue
            linked_before = self._linked
            await self._serve_once(self._peer)
            if self._linked is not linked_before:
                pause_ms = self._world.limits.backoff_ms
            await trio.sleep(pause_ms / 1000 * self._world.random.uniform(0.8, 1.2))
            pause_ms = min(2 * pause_ms, self._world.limits.backoff_max_ms)

    async def _until_wanted(self) -> None:
        while not (self._is_wanted or self._conversation.has_waiting):
            self._has_news = trio.Event()
            await self._has_news.wait()

    async def _serve_once(self, peer: Peer) -> None:
        """One link, or an attempt at one."""
        number = self._world.next_number()
        link = SentBy(self._broker_id, peer.incarnation, self._purpose, number)
        reason = "the other broker, or this one, has registered anew"
        with trio.CancelScope() as self._attempt:
            try:
                await self._serve(peer, link)
            except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, *LINK_ERRORS, _LinkOver) as group:
                reason = _reason(group)
        self._attempt, self._is_linked = None, False
        if self._linked is link or reason != self._reason:  # one that cannot be reached is told of once
            _log.info("peer connection closed", broker=self._broker_id, purpose=self._purpose, reason=reason)
        self._reason = reason
        self._conversation.lost(reason, link)
        if self._linked is not link:
            self._conversation.unreachable(reason)

    async def _serve(self, peer: Peer, link: SentBy) -> None:
        limits = self._world.limits
        stream: trio.abc.Stream | None = None
        try:
            with trio.move_on_after(limits.connect_timeout_ms / 1000) as connecting:
                stream = await self._world.connect(peer.host, peer.port)
                frames = FrameStream(stream, limits.reply_max_bytes)
                await self._greet(frames, peer, link)
            if connecting.cancelled_caught:
                raise _LinkOver(f"no link within {limits.connect_timeout_ms} ms")
            self._linked, self._is_linked, self._is_wanted = link, True, False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, frames)
                nursery.start_soon(self._receive, frames)
                nursery.start_soon(self._watch)
        finally:
            if stream is not None:
                await trio.aclose_forcefully(stream)

    async def _greet(self, frames: FrameStream, peer: Peer, link: SentBy) -> None:
        world = self._world
        claim = LinkClaim(world.broker_id, self._purpose, link.number, self._broker_id, peer.incarnation)
        await greet(frames, claim, world.salted, nonce_of(world.random.randbytes(NONCE_SIZE_BYTES)))

    async def _send(self, frames: FrameStream) -> None:
        while True:
            await self._until_wanted()
            await frames.send(self._conversation.take())

    async def _receive(self, frames: FrameStream) -> None:
        while True:
            self._conversation.answered(await frames.receive())

    async def _watch(self) -> None:
        """Whoever is asked after a look has a deadline behind the next one."""
        timeout_s = self._world.limits.request_timeout_ms / 1000
        while True:
            deadline_s, now_s = self._conversation.deadline_s, trio.current_time()
            if deadline_s <= now_s:
                raise _LinkOver(f"no answer within {self._world.limits.request_timeout_ms} ms")
            await trio.sleep_until(min(deadline_s, now_s + timeout_s))


def _reason(group: BaseExceptionGroup[BaseException]) -> str:
    """Of the first that failed."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
