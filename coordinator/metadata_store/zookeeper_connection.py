"""kazoo's connection to one ZooKeeper server, which is left when nothing was received from it for the read timeout.

kazoo 2.11 measures its own sending: each request postpones the ping, and a missing answer is noticed only while nothing
is sent. A server that went silent without closing its connection is then never left while requests are made. Here, as
in ZooKeeper's Java client, the time of the last received byte decides, and sending does not count.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler

if TYPE_CHECKING:
    from collections.abc import Callable


class ReceiveLimit:
    """How long a connected server may send nothing. Times in seconds of `clock`.

    kazoo's thread writes it; any thread may read `silent_s`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._limit_s = math.inf
        self._received_s = clock()

    def begin(self, limit_s: float) -> None:
        """Begin to measure: a server has taken the session on."""
        self._limit_s = limit_s
        self.note_received()

    def end(self) -> None:
        """Stop measuring: no server is connected, and connecting has limits of its own."""
        self._limit_s = math.inf

    def note_received(self) -> None:
        """Note that bytes have come from the server."""
        self._received_s = self._clock()

    @property
    def silent_s(self) -> float:
        """The seconds since bytes were last received, or since the start if none ever were."""
        return self._clock() - self._received_s

    @property
    def remaining_s(self) -> float:
        """The seconds until the server is to be left; 0 or less: now."""
        return self._limit_s - self.silent_s


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads and sockets, with two differences: connecting shares the session's time among the servers, as
    Java's client does (kazoo gives all of it to the first), and each wait for a socket obeys the receive limit."""

    def __init__(self, connect_timeout_s: float, receive_limit: ReceiveLimit) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self.receive_limit = receive_limit

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        return super().create_connection(*arguments, **{**options, "timeout": self._connect_timeout_s})

    def select(self, reading: list[Any], writing: list[Any], failing: list[Any], timeout: float | None = None) -> Any:
        """The sockets that are ready, in the form of `select.select`. kazoo names the server's socket first. Raises
        ConnectionDropped if the server has been silent for too long and no bytes of it wait to be read."""
        limit = self.receive_limit
        wait_s = max(0.0, min(math.inf if timeout is None else timeout, limit.remaining_s))
        ready = self.wait_for_sockets(reading, writing, failing, None if wait_s == math.inf else wait_s)
        if reading and reading[0] in ready[0]:
            limit.note_received()
        elif limit.remaining_s <= 0:
            raise ConnectionDropped("nothing was received within the read timeout")
        return ready

    def wait_for_sockets(self, *arguments: Any) -> Any:
        """kazoo's own select."""
        return super().select(*arguments)


class ServerConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Measures the silence of a server from the moment at which it has taken the session on."""

    def _connect(self, *arguments: Any) -> Any:
        limit: ReceiveLimit = self.handler.receive_limit
        limit.end()
        read_timeout_ms, connect_timeout_ms = super()._connect(*arguments)
        limit.begin(read_timeout_ms / 1000)
        return read_timeout_ms, connect_timeout_ms
