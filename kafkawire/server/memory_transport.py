"""Connections without a network: trio's memory streams behind the interfaces of `kafkawire.server.transport`.

Why it exists: tests, simulations and an embedded broker run the real server on these, with no port and no real time.

It refuses to be fast, and to bound what is sent but not read: the peer is always a task of the same process.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from dataclasses import dataclass

import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server.transport import Transport, read_slices

MemoryStream = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


class MemoryTransport:
    """One end of a pair of memory streams. What breaks raises the OSError a socket would raise."""

    __slots__ = ("sent_size_bytes", "stream")

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.sent_size_bytes = 0

    def receive_now(self, buffer: memoryview) -> int | None:
        return None

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            data = await self.stream.receive_some(len(buffer))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionResetError(errno.ECONNRESET, "memory stream broken") from error
        buffer[: len(data)] = data
        return len(data)

    def send_now(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        return segments

    async def send_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            pieces = read_slices(segment) if isinstance(segment, FileRange) else (segment,)
            for piece in pieces:
                await self._send(piece)

    def close(self) -> None:
        self.stream.send_stream.close()
        self.stream.receive_stream.close()

    async def _send(self, piece: bytes | bytearray | memoryview) -> None:
        try:
            await self.stream.send_all(piece)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BrokenPipeError(errno.EPIPE, "memory stream broken") from error
        self.sent_size_bytes += len(piece)


@dataclass(frozen=True, slots=True)
class MemoryAccepted:
    transport: Transport
    peer_host: str
    local_address: str


class MemoryListener:
    """A listener whose peers call `connect()`."""

    __slots__ = ("_arrived", "_waiting", "address")

    def __init__(self, address: tuple[str, int] = ("memory", 9092)) -> None:
        self.address = address
        self._arrived, self._waiting = trio.open_memory_channel[MemoryAccepted](math.inf)

    def connect(self, peer_host: str = "127.0.0.1") -> MemoryStream:
        """Queues a connection and returns the peer's end. Errors: ConnectionRefusedError when closed."""
        ours, theirs = memory_stream_pair()
        try:
            self._arrived.send_nowait(MemoryAccepted(MemoryTransport(ours), peer_host, self.address[0]))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "memory listener closed") from error
        return theirs

    async def accept(self) -> MemoryAccepted:
        return await self._waiting.receive()

    def close(self) -> None:
        self._arrived.close()
        self._waiting.close()
