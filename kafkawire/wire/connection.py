"""What one connection may do next: which request may start, whether more bytes may be read, when it must be closed.

Why it exists: order, in-flight limits and deadlines are decided here, without a socket or a clock, so that every rule
is testable by calling it. The shell (`kafkawire.server.session`) hands in bytes, the fate of requests and the time; it
asks for the next request and for a reason to close.

The life of a connection:

    open ── refuse(reason) ──> refused: nothing more is read or started; what was started is still answered,
                               then the shell closes

Requests are started and answered in order. A single-stage request keeps the next one from starting until its reply has
left (Kafka mutes the channel for every request, SocketServer.Processor); a two-stage request (Produce) lets the next
one start at once, because otherwise batches of one connection could never share a round of the engine.

It refuses to decode requests, and to know what a request does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kafkawire.wire.framing import Framer


class ProtocolViolation(Exception):
    """The peer sent what no client may send: the connection is closed without an answer. The text is for the log."""


class CloseReason(Enum):
    """Why a connection ended; the value is the sentence for the log and the label for metrics."""

    CLOSED_BY_PEER = "closed by peer"
    BROKEN = "broken by peer or network"
    FRAME_SIZE = "impossible frame size"
    PROTOCOL_VIOLATION = "protocol violation"
    IDLE = "idle"
    HALF_FRAME = "half a request did not become a whole one in time"
    SLOW_READER = "reply not read in time"
    SLOW_DRAIN = "last replies not finished in time"
    HANDLER_FAILED = "handler failed"
    FILE_TOO_SHORT = "file shorter than the reply promised"
    SHUTDOWN = "broker shuts down"


@dataclass(slots=True, eq=False, weakref_slot=True)
class ConnectionInfo:
    """What handlers may know about a connection. One object per connection: its identity can own things.

    A handler that parks a long poll first looks at `is_shutting_down`, then sets `answer_early`: it is called when the
    broker shuts down, or needs the bytes that requests in flight hold, and the poll should be answered with what there
    is. One slot is enough, because a parked single-stage request keeps every other from starting.
    """

    listener_name: str
    peer_host: str
    local_address: str  # the IP address by which the peer has reached us: what to advertise when none is configured
    client_software_name: str = "unknown"  # Kafka's value until ApiVersions v3 tells (KIP-511)
    client_software_version: str = "unknown"
    is_shutting_down: bool = False
    answer_early: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection. The last three are ours; Kafka bounds them by connections.max.idle.ms only.

    A transfer (a request coming in, a reply going out) may take its timeout plus the time that its bytes moved so far
    take at `min_transfer_rate_bytes_per_s`: a slow link is not a dead peer, one byte now and then is.
    """

    max_frame_size_bytes: int = 100 * 1024 * 1024  # socket.request.max.bytes
    max_in_flight_requests: int = 16
    max_in_flight_size_bytes: int = 32 * 1024 * 1024
    idle_timeout_ms: int = 600_000  # connections.max.idle.ms
    half_frame_timeout_ms: int = 30_000
    reply_timeout_ms: int = 30_000
    min_transfer_rate_bytes_per_s: int = 64 * 1024


class ConnectionMachine:
    """One connection's order of requests, limits and deadlines. Every `now_s` comes from one monotonic clock."""

    __slots__ = (
        "_framer",
        "_in_flight",
        "_in_flight_size",
        "_is_paused",
        "_last_activity_s",
        "_last_is_two_stage",
        "_limits",
        "_partial_since_s",
        "_refused_since_s",
        "_sending_since_s",
        "refusal",
    )

    def __init__(self, limits: ConnectionLimits, now_s: float) -> None:
        self._limits = limits
        self._framer = Framer(limits.max_frame_size_bytes)
        self._in_flight: deque[int] = deque()  # sizes of the requests whose reply has not left
        self._in_flight_size = 0
        self._last_is_two_stage = True
        self._is_paused = False
        self._last_activity_s = now_s
        self._partial_since_s: float | None = None
        self._sending_since_s: float | None = None
        self._refused_since_s = now_s
        self.refusal: CloseReason | None = None

    # Reading

    @property
    def may_read(self) -> bool:
        return self.refusal is None and self._below_limits and self._framer.has_room

    @property
    def in_large_frame(self) -> bool:
        """A frame has a buffer of its own and is not complete; the buffer is part of `held_size_bytes`."""
        return self._framer.large_size_bytes > 0

    @property
    def held_size_bytes(self) -> int:
        """Memory to count against the bound over all connections: requests in flight and the large one coming in."""
        return self._in_flight_size + self._framer.large_size_bytes

    def buffer(self) -> memoryview:
        """Where to receive into; needs `may_read`. Release the view before asking again. Errors: FramingError."""
        return self._framer.buffer()

    def received(self, size_bytes: int, now_s: float) -> None:
        """That many bytes of the view were filled."""
        self._framer.received(size_bytes)
        self._last_activity_s = now_s

    def reading_paused(self) -> None:
        """Bytes are left unread for reasons of our own: a half frame is not the peer's fault now."""
        self._is_paused = True

    def reading_resumed(self, now_s: float) -> None:
        """The peer's time for the rest of a frame starts anew."""
        self._is_paused = False
        if self._partial_since_s is not None:
            self._partial_since_s = now_s

    # Requests

    @property
    def holds_bytes(self) -> bool:
        """Something was received that no request has begun with."""
        return self._framer.partial_size_bytes > 0

    @property
    def may_start(self) -> bool:
        if self.refusal is not None:
            return False
        return not self._in_flight or (self._last_is_two_stage and self._below_limits)

    def next_request(self, now_s: float) -> bytearray | None:
        """The frame of the request that starts now; None if there is none or it has to wait. Errors: FramingError."""
        if not self.may_start:
            return None
        frame = self._framer.next_frame()
        if frame is not None:
            self._partial_since_s = None
        elif self._partial_since_s is None and self._framer.partial_size_bytes > 0:
            self._partial_since_s = now_s
        return frame

    def started(self, size_bytes: int, *, two_stage: bool) -> None:
        """The request from `next_request()` is in flight, until `finished()`."""
        self._in_flight.append(size_bytes)
        self._in_flight_size += size_bytes
        self._last_is_two_stage = two_stage

    def sending(self, now_s: float) -> None:
        """The oldest request's reply begins to leave."""
        self._sending_since_s = now_s

    def finished(self, now_s: float) -> None:
        """The oldest request is done with: its reply has left, or it has none (acks=0)."""
        self._in_flight_size -= self._in_flight.popleft()
        self._sending_since_s = None
        self._last_activity_s = now_s

    # The end

    def refuse(self, reason: CloseReason, now_s: float) -> None:
        """Start nothing more; what is in flight may finish. The first reason stays."""
        if self.refusal is None:
            self.refusal = reason
            self._refused_since_s = now_s

    def overdue(self, now_s: float, sent_size_bytes: int) -> CloseReason | None:
        """The deadline that has passed, if any. `sent_size_bytes` is how much of the reply now leaving is gone."""
        limits = self._limits
        sending_since_s, partial_since_s = self._sending_since_s, self._partial_since_s
        if sending_since_s is not None:
            if now_s > self._transfer_deadline_s(sending_since_s, limits.reply_timeout_ms, sent_size_bytes):
                return CloseReason.SLOW_READER
        elif self.refusal is CloseReason.SHUTDOWN:
            return None  # the server's own grace period bounds it
        elif self.refusal is not None:
            if now_s > self._refused_since_s + limits.reply_timeout_ms / 1000:
                return CloseReason.SLOW_DRAIN
        elif partial_since_s is not None and not self._is_paused:
            received_bytes = self._framer.partial_size_bytes
            if now_s > self._transfer_deadline_s(partial_since_s, limits.half_frame_timeout_ms, received_bytes):
                return CloseReason.HALF_FRAME
        if not self._in_flight and now_s > self._last_activity_s + limits.idle_timeout_ms / 1000:
            return CloseReason.IDLE
        return None

    def _transfer_deadline_s(self, since_s: float, timeout_ms: int, moved_size_bytes: int) -> float:
        return since_s + timeout_ms / 1000 + moved_size_bytes / self._limits.min_transfer_rate_bytes_per_s

    @property
    def _below_limits(self) -> bool:
        return (
            len(self._in_flight) < self._limits.max_in_flight_requests
            and self._in_flight_size < self._limits.max_in_flight_size_bytes
        )
