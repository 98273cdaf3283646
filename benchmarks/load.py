"""Sends pre-encoded requests over n connections with k in flight, as cheaply as Python can.

The generator shares the machine with the broker, so what it costs is taken from the broker: requests are encoded once
and only their correlation id (and the offset of a fetch) is patched, replies are read for their error code and the rest
is dropped by the kernel (MSG_TRUNC). It decodes nothing and knows nothing of messages: `wire_requests.py` does.
"""

from __future__ import annotations

import gc
import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CORRELATION_ID_POSITION = 8  # behind the frame's size, the API key and the version
HEAD_SIZE_BYTES = 128  # enough of a reply to hold its error codes
SCRATCH_SIZE_BYTES = 1 << 20
STALL_TIMEOUT_S = 30.0

_int32 = struct.Struct(">i")
_int64 = struct.Struct(">q")


class LoadFailedError(Exception):
    """The broker answered with an error, closed a connection or stopped answering: there is nothing to measure."""


@dataclass
class Requests:
    """The requests of one connection: `count` frames, these in turn, each with the next offset if it has one."""

    frames: Sequence[bytearray]
    count: int
    check: Callable[[bytes], None]  # gets the head of each reply, raises LoadFailedError
    offset_position: int | None = None
    offsets: Sequence[int] = (0,)

    @property
    def size_bytes(self) -> int:
        """Of all that is sent."""
        return self.count * len(self.frames[0])

    def prepare(self, number: int) -> bytearray:
        frame = self.frames[number % len(self.frames)]
        _int32.pack_into(frame, CORRELATION_ID_POSITION, number)
        if self.offset_position is not None:
            _int64.pack_into(frame, self.offset_position, self.offsets[number % len(self.offsets)])
        return frame


@dataclass
class Measured:
    """One run of a load."""

    seconds: float = 0.0
    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def percentile_ms(self, fraction: float) -> float:
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


class _Connection:
    """One socket; sends block (replies are read soon enough), reads never do."""

    def __init__(self, port: int, requests: Requests, measured: Measured) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), STALL_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = requests
        self._measured = measured
        self._sent = 0
        self._answered = 0
        self._sent_at: deque[float] = deque()
        self._pending = bytearray()
        self._skip_bytes = 0
        self._scratch = memoryview(bytearray(SCRATCH_SIZE_BYTES))

    @property
    def done(self) -> bool:
        return self._answered == self._requests.count

    def send_next(self) -> None:
        if self._sent < self._requests.count:
            frame = self._requests.prepare(self._sent)
            self._sent += 1
            self._sent_at.append(time.perf_counter())
            self.socket.sendall(frame)
            self._measured.sent_bytes += len(frame)

    def on_readable(self) -> None:
        """Takes what one call to the kernel gives and sends one request for each reply that is complete."""
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
            raise LoadFailedError("the broker closed a connection")
        self._measured.received_bytes += size_bytes

    def _take_frames(self) -> None:
        pending = self._pending
        while len(pending) >= 4:
            size = 4 + _int32.unpack_from(pending)[0]
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
        self._measured.latencies_s.append(time.perf_counter() - self._sent_at.popleft())
        self._answered += 1
        self.send_next()


def run_load(port: int, requests: Sequence[Requests], in_flight: int) -> Measured:
    """Runs one connection per entry of `requests` to the end of all; raises LoadFailedError."""
    measured = Measured(requests=sum(each.count for each in requests))
    gc.disable()  # the generator makes no cycles and must not pause
    connections = {}
    poll = select.epoll()
    try:
        for each in requests:
            connection = _Connection(port, each, measured)
            connections[connection.socket.fileno()] = connection
            poll.register(connection.socket, select.EPOLLIN)
        started = time.perf_counter()
        for _ in range(in_flight):
            for connection in connections.values():
                connection.send_next()
        _drive(poll, connections)
        measured.seconds = time.perf_counter() - started
    finally:
        gc.enable()
        poll.close()
        for connection in connections.values():
            connection.socket.close()
    return measured


def _drive(poll: select.epoll, connections: dict[int, _Connection]) -> None:
    busy = len(connections)
    while busy:
        events = poll.poll(STALL_TIMEOUT_S)
        if not events:
            raise LoadFailedError(f"no reply for {STALL_TIMEOUT_S:.0f} s, {busy} connections unfinished")
        for descriptor, _ in events:
            connection = connections[descriptor]
            connection.on_readable()
            if connection.done:
                poll.unregister(descriptor)
                busy -= 1
