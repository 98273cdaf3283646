"""Replies of one connection: sent bytes, and bytes for which the peer has no room yet."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server.stats import ServerStats
from kafkawire.server.transport import Transport


class Outgoing:
    """Sender in front of a transport. It keeps the unsent rest, and counts replies."""

    __slots__ = ("_counted_size_bytes", "_rest", "_stats", "_transport", "is_blocked", "last_sent_s")

    def __init__(self, transport: Transport, stats: ServerStats) -> None:
        self._transport = transport
        self._stats = stats
        self._rest: Sequence[Segment] = ()
        self._counted_size_bytes = 0
        self.is_blocked = False  # a rest waits for room at the peer
        self.last_sent_s = float("-inf")

    @property
    def held_size_bytes(self) -> int:
        """Memory of the unsent rest. Ranges of files hold none."""
        return sum(len(one) for one in self._rest if not isinstance(one, FileRange))

    def send(self, segments: Sequence[Segment], now_s: float) -> None:
        """Send a reply, if nothing is blocked. Errors: OSError, FileTooShortError."""
        self.last_sent_s = now_s
        try:
            self._rest = self._transport.send(segments)
            self.is_blocked = bool(self._rest)
        finally:
            sent_size_bytes = self._transport.sent_size_bytes
            self._stats.sent_size_bytes += sent_size_bytes - self._counted_size_bytes
            self._counted_size_bytes = sent_size_bytes

    def send_rest(self, now_s: float) -> None:
        """Send the rest. Errors: OSError, FileTooShortError."""
        self.send(self._rest, now_s)

    def drop(self) -> None:
        """Drop the rest: the peer will not read it."""
        self._rest = ()
        self.is_blocked = False
