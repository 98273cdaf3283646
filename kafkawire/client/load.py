"""Sends pre-encoded requests over n connections with k in flight, as cheaply as Python can.

A load often shares its machine with the broker, and takes CPU time from it. So requests are encoded once, and only
their correlation id (and the offset of a fetch) is patched. Of replies only the error code is read; the kernel drops
the rest (MSG_TRUNC). This module does not know messages: the caller encodes the requests. It is the only part of the
client that blocks, and has its own sockets.
"""

from __future__ import annotations

import gc
import math
import select
import socket
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from time import perf_counter
from typing import Final

from kafkawire.client.connection import Address
from kafkawire.client.errors import ClientError

CORRELATION_ID_POSITION: Final = 8  # after the frame's size, the API key and the version
HEAD_SIZE_BYTES: Final = 512  # holds the first error code of a reply, after the name of a topic
SCRATCH_SIZE_BYTES: Final = 1 << 20
STALL_TIMEOUT_S: Final = 30.0

_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class LoadFailed(ClientError):
    """The broker answered with an error, closed a connection or stopped answering: there is no result."""


@dataclass
class Requests:
    """Requests of one connection: `count` frames, in turns, each with the next offset if it has one."""

    frames: Sequence[bytearray]
    count: int
    check: Callable[[bytes], None]  # gets the head of each reply, raises LoadFailed
    offset_position: int | None = None
    offsets: Sequence[int] = (0,)

    @property
    def size_bytes(self) -> int:
        """Size of all sent requests."""
        return self.count * len(self.frames[0])

    def prepare(self, number: int) -> bytearray:
        frame = self.frames[number % len(self.frames)]
        _INT32.pack_into(frame, CORRELATION_ID_POSITION, number)
        if self.offset_position is not None:
            _INT64.pack_into(frame, self.offset_position, self.offsets[number % len(self.offsets)])
        return frame


@dataclass
class Measured:
    """Measurements of the answered requests."""

    began_s: float = 0.0
    ended_s: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    @property
    def requests(self) -> int:
        return len(self.latencies_s)

    def percentile_ms(self, fraction: float) -> float:
        return percentile_ms(sorted(self.latencies_s), fraction)


def percentile_ms(ordered: Sequence[float], fraction: float) -> float:
    """Percentile in ms of sorted latencies in seconds. There must be at least one."""
    return 1000 * ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


class _Connection:
    """A socket of the load. Sends block, because replies are read soon enough; reads never block."""

    def __init__(self, stream: socket.socket, requests: Requests, measured: Measured) -> None:
        self.until_s = math.inf
        self.socket = stream
        self._requests = requests
        self._measured = measured
        self._sent = 0
        self._sent_at: deque[float] = deque()
        self._pending = bytearray()
        self._skip_bytes = 0
        self._scratch = memoryview(bytearray(SCRATCH_SIZE_BYTES))

    @property
    def done(self) -> bool:
        return not self._sent_at

    def send_next(self) -> None:
        """Send the next request, unless all are sent or the time is up."""
        now_s = perf_counter()
        if self._sent < self._requests.count and now_s < self.until_s:
            frame = self._requests.prepare(self._sent)
            self._sent += 1
            self._sent_at.append(now_s)
            self.socket.sendall(frame)
            self._measured.sent_bytes += len(frame)

    def on_readable(self) -> None:
        """Read once from the kernel, and send one request for each complete reply."""
        if self._skip_bytes:
            room = min(self._skip_bytes, SCRATCH_SIZE_BYTES)
            size = self.socket.recv_into(self._scratch, room, socket.MSG_TRUNC | socket.MSG_DONTWAIT)
            self._count(size)
            self._skip_bytes -= size
            if not self._skip_bytes:
                self._complete()
            return
        data = self.socket.recv(4096, socket.MSG_DONTWAIT)
        self._count(len(data))
        self._pending += data
        self._take_frames()

    def _count(self, size_bytes: int) -> None:
        if not size_bytes:
            raise LoadFailed("the broker closed a connection")
        self._measured.received_bytes += size_bytes

    def _take_frames(self) -> None:
        pending = self._pending
        while len(pending) >= 4:
            size = 4 + _INT32.unpack_from(pending)[0]
            if len(pending) < size and len(pending) < HEAD_SIZE_BYTES:
                return
            self._requests.check(bytes(pending[4:HEAD_SIZE_BYTES]))
            if len(pending) < size:
                self._skip_bytes = size - len(pending)
                pending.clear()
                return
            del pending[:size]
            self._complete()

    def _complete(self) -> None:
        now_s = perf_counter()
        self._measured.latencies_s.append(now_s - self._sent_at.popleft())
        self._measured.ended_s = now_s
        self.send_next()


def _connected(address: Address) -> socket.socket:
    try:
        found = socket.create_connection(address, STALL_TIMEOUT_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise LoadFailed(f"cannot connect to {address}: {error.strerror or error}") from error
    return found


class Load:
    """A run of the load. Another thread may read `measured` meanwhile."""

    def __init__(self, in_flight: int, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        self.measured = Measured()
        self._in_flight = in_flight
        self._stall_timeout_s = stall_timeout_s

    def run(self, targets: Iterable[tuple[Address, Requests]], seconds: float = math.inf) -> Measured:
        """Run one connection for each target, until all requests are sent or the time is up. Raises LoadFailed."""
        gc.disable()  # the run makes no cycles, and must not pause
        connections: dict[int, _Connection] = {}
        poll = select.epoll()
        try:
            for address, requests in targets:
                connection = _Connection(_connected(address), requests, self.measured)
                connections[connection.socket.fileno()] = connection
                poll.register(connection.socket, select.EPOLLIN)
            self.measured.began_s = self.measured.ended_s = perf_counter()
            for connection in connections.values():
                connection.until_s = self.measured.began_s + seconds
            for _ in range(self._in_flight):
                for connection in connections.values():
                    connection.send_next()
            self._drive(poll, connections)
        except OSError as error:
            raise LoadFailed(f"lost a connection: {error.strerror or error}") from error
        finally:
            gc.enable()
            poll.close()
            for connection in connections.values():
                connection.socket.close()
        return self.measured

    def _drive(self, poll: select.epoll, connections: dict[int, _Connection]) -> None:
        busy = sum(not connection.done for connection in connections.values())
        while busy:
            events = poll.poll(self._stall_timeout_s)
            if not events:
                raise LoadFailed(f"no reply for {self._stall_timeout_s:g} s, {busy} connections unfinished")
            for descriptor, _ in events:
                connection = connections[descriptor]
                connection.on_readable()
                if connection.done:
                    poll.unregister(descriptor)
                    busy -= 1
