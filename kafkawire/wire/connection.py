"""State machine of one connection: may a request start, may bytes be read, must it be closed.

Why it exists: order, in-flight limits and deadlines are decided here, without a socket or a clock, so that every rule
is testable by calls. The shell (`kafkawire.server.session`) passes bytes, results of requests and the time; it asks for
the next request and for a reason to close.

The life of a connection:

    open ── refuse(reason) ──> refused: nothing more is read or started; started requests are still answered,
     │                         then the shell closes
     └───── peer_left() ─────> left: nothing more is read; received requests are still started and answered, as in
                               Kafka, then the shell closes

Requests are started and answered in order. A single-stage request keeps the next one from starting until its reply has
left (Kafka mutes the channel for every request, SocketServer.Processor). A two-stage request (Produce) lets the next
one start at once: otherwise batches of one connection could never share a commit batch of the engine.

The machine does not decode requests, and does not know their effects.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from kafkawire.wire.framing import Framer


class ProtocolViolation(Exception):
    """The peer sent invalid input: the connection is closed without a reply. The text is for the log."""


class CloseReason(Enum):
    """Reason of the end of a connection. The value is the text in the log and the label in the metrics."""

    CLOSED_BY_PEER = "closed by peer"
    BROKEN = "broken by peer or network"
    FRAME_SIZE = "impossible frame size"
    PROTOCOL_VIOLATION = "protocol violation"
    IDLE = "idle"
    HALF_FRAME = "half a request did not become a whole one in time"
    NO_ROOM = "no room for the rest of a large request in time"
    SLOW_READER = "reply not read in time"
    SLOW_DRAIN = "last replies not finished in time"
    HANDLER_FAILED = "handler failed"
    FILE_TOO_SHORT = "file shorter than the reply promised"
    SHUTDOWN = "broker shuts down"
    HANDSHAKE_FAILED = "TLS handshake failed"
    SLOW_HANDSHAKE = "TLS handshake not finished in time"
    CROWDED_ADDRESS = "its address has too many unfinished handshakes"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection. The last three are kafkawire's; Kafka has only connections.max.idle.ms.

    A transfer (an incoming request, an outgoing reply) must end within its timeout. If it has moved at
    `min_transfer_rate_bytes_per_s` until then, it gets as much time again. So a slow connection stays open, and a peer
    that sends a byte now and then, or stops, is disconnected.
    """

    max_frame_size_bytes: int = 100 * 1024 * 1024  # socket.request.max.bytes
    max_in_flight_requests: int = 16
    max_in_flight_size_bytes: int = 32 * 1024 * 1024
    idle_timeout_ms: int = 600_000  # connections.max.idle.ms
    half_frame_timeout_ms: int = 30_000
    reply_timeout_ms: int = 30_000
    min_transfer_rate_bytes_per_s: int = 64 * 1024


class _Transfer:
    """A transfer that has to make progress."""

    __slots__ = ("_moved_size_bytes", "_since_s")

    def __init__(self, now_s: float, moved_size_bytes: int = 0) -> None:
        self._since_s = now_s
        self._moved_size_bytes = moved_size_bytes

    def is_stalled(self, now_s: float, moved_size_bytes: int, timeout_s: float, min_rate_bytes_per_s: int) -> bool:
        """Whether the transfer is stalled, given the moved bytes. If it has moved enough, a new period begins."""
        if now_s <= self._since_s + timeout_s:
            return False
        if moved_size_bytes - self._moved_size_bytes < min_rate_bytes_per_s * timeout_s:
            return True
        self._since_s, self._moved_size_bytes = now_s, moved_size_bytes
        return False


class HeldFrame:
    """Bytes held by a request in flight, until it is answered or releases them earlier."""

    __slots__ = ("is_released", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_released = False


class ConnectionMachine:
    """Order of requests, limits and deadlines of one connection. Every `now_s` comes from one monotonic clock."""

    __slots__ = (
        "_framer",
        "_has_room",
        "_in_flight",
        "_in_flight_size",
        "_incoming",
        "_last_activity_s",
        "_last_is_two_stage",
        "_left_since_s",
        "_limits",
        "_outgoing",
        "_paused_since_s",
        "_refused_since_s",
        "_released_size",
        "is_ending",
        "refusal",
    )

    def __init__(self, limits: ConnectionLimits, now_s: float) -> None:
        self._limits = limits
        self._framer = Framer(limits.max_frame_size_bytes)
        self._in_flight: deque[HeldFrame] = deque()  # requests whose reply has not left
        self._in_flight_size = 0  # of their frames, released or not: counts for the limits of the connection
        self._released_size = 0
        self._has_room = True  # for one more request in flight
        self._last_is_two_stage = True
        self._last_activity_s = now_s
        self._incoming: _Transfer | None = None  # of an incomplete frame
        self._outgoing: _Transfer | None = None  # of replies
        self._paused_since_s: float | None = None
        self._left_since_s: float | None = None
        self._refused_since_s = now_s
        self.refusal: CloseReason | None = None
        self.is_ending = False  # refused, or the peer has left

    # Reading

    @property
    def may_read(self) -> bool:
        return self._has_room and not self.is_ending and self._framer.has_room

    @property
    def wants_large_buffer(self) -> bool:
        """Whether the next bytes go into the own buffer of a large frame; it is part of `held_size_bytes`."""
        return self._framer.wants_large_buffer

    @property
    def large_size_bytes(self) -> int:
        """Memory of the incoming large frame."""
        return self._framer.large_size_bytes

    @property
    def held_size_bytes(self) -> int:
        """Memory that counts for the bound over all connections: unreleased requests, and the incoming large frame."""
        return self._in_flight_size - self._released_size + self._framer.large_size_bytes

    @property
    def unanswered_size_bytes(self) -> int:
        """Size of the frames of requests whose reply has not left, released or not."""
        return self._in_flight_size

    @property
    def awaits_acks(self) -> bool:
        """Whether a Produce is in flight, behind which more requests could start."""
        return bool(self._in_flight) and self._last_is_two_stage

    def buffer(self) -> memoryview:
        """The buffer to receive into; needs `may_read`. Release the view before the next call. Errors: FramingError."""
        return self._framer.buffer()

    def received(self, size_bytes: int, now_s: float) -> None:
        """Note that so many bytes of the view were filled."""
        self._framer.received(size_bytes)
        self._last_activity_s = now_s

    def reading_paused(self, now_s: float) -> None:
        """Note that the broker pauses reading. An incomplete small frame is not the peer's fault meanwhile."""
        if self._paused_since_s is None:
            self._paused_since_s = now_s

    def reading_resumed(self, now_s: float) -> None:
        """Note that reading goes on. The deadline for the rest of a frame begins again."""
        self._paused_since_s = None
        if self._incoming is not None:
            self._incoming = _Transfer(now_s, self._framer.partial_size_bytes)

    def peer_left(self, now_s: float) -> None:
        """Note that the peer has ended its stream. Received requests may still start."""
        if self._left_since_s is None:
            self._left_since_s = now_s
            self.is_ending = True
            self._incoming = None

    # Requests

    @property
    def has_left(self) -> bool:
        return self._left_since_s is not None

    @property
    def holds_bytes(self) -> bool:
        """Whether received bytes are left that no request has taken."""
        return self._framer.partial_size_bytes > 0

    @property
    def may_start(self) -> bool:
        if self.refusal is not None:
            return False
        return not self._in_flight or (self._last_is_two_stage and self._has_room)

    def next_request(self, now_s: float) -> bytearray | None:
        """Frame of the request that starts now; None if there is none or it has to wait. Errors: FramingError."""
        if self.refusal is not None or (self._in_flight and not (self._last_is_two_stage and self._has_room)):
            return None
        framer = self._framer
        if not framer.partial_size_bytes:
            return None
        frame = framer.next_frame()
        if frame is not None:
            self._incoming = None
        elif self._incoming is None and self._left_since_s is None:
            self._incoming = _Transfer(now_s)
        return frame

    def started(self, held_size_bytes: int, *, two_stage: bool) -> HeldFrame:
        """Note that the request from `next_request()` is in flight, until `finished()`.

        It holds that many bytes of its frame until `released()`.
        """
        held = HeldFrame(held_size_bytes)
        self._in_flight.append(held)
        self._in_flight_size += held_size_bytes
        self._has_room = self._is_below_limits()
        self._last_is_two_stage = two_stage
        return held

    def released(self, held: HeldFrame) -> None:
        """Free the memory of a frame; the limits of the connection still count it until the reply has left.

        A second call has no effect.
        """
        if not held.is_released:
            held.is_released = True
            self._released_size += held.size_bytes

    def sending(self, now_s: float, sent_size_bytes: int) -> None:
        """Note that replies wait for the peer to read; `sent_size_bytes` have left since the start."""
        self._outgoing = _Transfer(now_s, sent_size_bytes)

    def finished(self, now_s: float, requests: int = 1) -> None:
        """Note that the oldest requests are done: their replies have left, or they have none (acks=0)."""
        for _ in range(requests):
            held = self._in_flight.popleft()
            self._in_flight_size -= held.size_bytes
            if held.is_released:
                self._released_size -= held.size_bytes
            held.is_released = True
        self._has_room = self._is_below_limits()
        self._outgoing = None
        self._last_activity_s = now_s

    # The end

    def refuse(self, reason: CloseReason, now_s: float) -> None:
        """Start nothing more; requests in flight may finish. The first reason stays."""
        if self.refusal is None:
            self.refusal = reason
            self.is_ending = True
            self._refused_since_s = now_s

    def overdue(self, now_s: float, sent_size_bytes: int) -> CloseReason | None:
        """The deadline that has passed, if any. `sent_size_bytes` have left since the start."""
        limits = self._limits
        if self._outgoing is not None:
            return CloseReason.SLOW_READER if self._is_stalled(self._outgoing, now_s, sent_size_bytes) else None
        if self.refusal is CloseReason.SHUTDOWN:
            return None  # bounded by the server's own grace period
        if self.refusal is not None:
            is_over = now_s > self._refused_since_s + limits.reply_timeout_ms / 1000
            return CloseReason.SLOW_DRAIN if is_over else None
        if self._left_since_s is not None:
            is_over = now_s > max(self._left_since_s, self._last_activity_s) + limits.reply_timeout_ms / 1000
            return CloseReason.CLOSED_BY_PEER if is_over else None
        return self._overdue_receiving(now_s)

    def _overdue_receiving(self, now_s: float) -> CloseReason | None:
        limits = self._limits
        if self._paused_since_s is not None:
            if self._framer.large_size_bytes and now_s > self._paused_since_s + limits.half_frame_timeout_ms / 1000:
                return CloseReason.NO_ROOM
        elif self._incoming is not None and self._is_half_frame_stalled(now_s):
            return CloseReason.HALF_FRAME
        if not self._in_flight and now_s > self.idle_until_s:
            return CloseReason.IDLE
        return None

    def _is_half_frame_stalled(self, now_s: float) -> bool:
        assert self._incoming is not None
        timeout_s = self._limits.half_frame_timeout_ms / 1000
        received = self._framer.partial_size_bytes
        return self._incoming.is_stalled(now_s, received, timeout_s, self._limits.min_transfer_rate_bytes_per_s)

    def _is_stalled(self, outgoing: _Transfer, now_s: float, sent_size_bytes: int) -> bool:
        timeout_s = self._limits.reply_timeout_ms / 1000
        return outgoing.is_stalled(now_s, sent_size_bytes, timeout_s, self._limits.min_transfer_rate_bytes_per_s)

    @property
    def idle_until_s(self) -> float:
        """Earliest deadline while nothing is under way."""
        return self._last_activity_s + self._limits.idle_timeout_ms / 1000

    def _is_below_limits(self) -> bool:
        return (
            len(self._in_flight) < self._limits.max_in_flight_requests
            and self._in_flight_size < self._limits.max_in_flight_size_bytes
        )
