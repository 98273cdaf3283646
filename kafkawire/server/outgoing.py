"""What of one connection's replies has left, and what the peer has not made room for yet."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import Transport


class Outgoing:
    """In front of a transport: it remembers the rest, and counts."""

    __slots__ = ("_counted_size_bytes", "_rest", "_stats", "_transport", "is_blocked", "last_sent_s")

    def __init__(self, transport: Transport, stats: ServerStats) -> None:
        self._transport = transport
        self._stats = stats
        self._rest: Sequence[Segment] = ()
        self._counted_size_bytes = 0
        self.is_blocked = False  # the peer has not made room for all of it
        self.last_sent_s = float("-inf")

    @property
    def held_size_bytes(self) -> int:
        """Memory of what waits; files are none."""
        return sum(len(one) for one in self._rest if not isinstance(one, FileRange))

    def send(self, segments: Sequence[Segment], now_s: float) -> None:
        """When nothing is blocked. Errors: OSError, FileTooShortError."""
        self.last_sent_s = now_s
        try:
            self._rest = self._transport.send(segments)
            self.is_blocked = bool(self._rest)
        finally:
            sent_size_bytes = self._transport.sent_size_bytes
            self._stats.sent_size_bytes += sent_size_bytes - self._counted_size_bytes
            self._counted_size_bytes = sent_size_bytes

    def send_rest(self, now_s: float) -> None:
        """Errors: OSError, FileTooShortError."""
        self.send(self._rest, now_s)

    def drop(self) -> None:
        """Nobody will read it."""
        self._rest = ()
        self.is_blocked = False
