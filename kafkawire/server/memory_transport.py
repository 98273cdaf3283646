"""Connections without a network: two ends in one process, one behind the interfaces of `kafkawire.server.transport`.

Why it exists: tests, simulations and an embedded broker run the real server on these, without a port and without real
time. It is not made for speed. Unread bytes are unbounded, unless a test gives the peer a `room_bytes`.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import trio

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server.poller import READ, WRITE, Poller, Watcher
from kafkawire.server.transport import Transport, read_slices


class _Pipe:
    """Bytes in one direction."""

    __slots__ = ("data", "has_ended", "is_broken")

    def __init__(self) -> None:
        self.data = bytearray()
        self.has_ended = False  # nothing more will be sent
        self.is_broken = False  # nothing more will be received


class MemoryTransport:
    """The broker's end. Its failures raise the OSError of a socket."""

    holds_received = False
    __slots__ = (
        "__weakref__",
        "_events",
        "_incoming",
        "_outgoing",
        "_peer",
        "_poller",
        "_watcher",
        "is_held",
        "sent_size_bytes",
    )  # fmt: skip

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, peer: MemoryStream) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer
        self._poller: Poller | None = None
        self._watcher: Watcher | None = None
        self._events = 0
        self.is_held = False  # the broker is suspended: it gets no events
        self.sent_size_bytes = 0

    def watch(self, poller: Poller, watcher: Watcher, events: int) -> None:
        self._poller, self._watcher, self._events = poller, watcher, events
        self.notice()

    def notice(self) -> None:
        """Report present events to the poller, like a level-triggered one."""
        found = READ if self._incoming.data or self._incoming.has_ended else 0
        if self._peer.room_bytes > 0 or self._outgoing.is_broken:
            found |= WRITE
        if self._poller is not None and self._watcher is not None and found & self._events and not self.is_held:
            self._poller.note(self._watcher, found & self._events)

    def receive(self, buffer: memoryview) -> int | None:
        incoming = self._incoming
        if incoming.is_broken:
            raise ConnectionResetError(errno.ECONNRESET, "memory stream broken")
        size_bytes = min(len(buffer), len(incoming.data))
        if not size_bytes:
            return 0 if incoming.has_ended else None
        buffer[:size_bytes] = incoming.data[:size_bytes]
        del incoming.data[:size_bytes]
        self.notice()
        return size_bytes

    def send(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        if self._outgoing.is_broken:
            raise BrokenPipeError(errno.EPIPE, "memory stream broken")
        rest: list[Segment] = []
        for segment in segments:
            for piece in read_slices(segment) if isinstance(segment, FileRange) else (segment,):
                taken = min(len(piece), self._peer.room_bytes)
                self._outgoing.data += memoryview(piece)[:taken]
                self._peer.room_bytes -= taken
                self.sent_size_bytes += taken
                if taken < len(piece):
                    rest.append(memoryview(piece)[taken:])
        self._peer.wake()
        return rest

    def finish(self) -> None:
        self._outgoing.has_ended = True
        self._peer.wake()

    def close(self) -> None:
        self._events = 0
        self._incoming.is_broken = self._outgoing.has_ended = True
        self._peer.wake()


class MemoryStream(trio.abc.HalfCloseableStream):
    """The peer's end, a trio stream."""

    def __init__(self) -> None:
        self._outgoing, self._incoming = _Pipe(), _Pipe()
        self._transport = MemoryTransport(self._outgoing, self._incoming, self)
        self._readers = trio.lowlevel.ParkingLot()
        self.room_bytes = 1 << 62  # bytes that may still be sent to it

    @property
    def transport(self) -> MemoryTransport:
        """The broker's end."""
        return self._transport

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._outgoing.has_ended:
            raise trio.ClosedResourceError("this end was closed")
        if self._outgoing.is_broken:
            raise trio.BrokenResourceError("the other end was closed")
        self._outgoing.data += data
        self._transport.notice()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        self._outgoing.has_ended = True
        self._transport.notice()
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._incoming.data and not self._incoming.has_ended:
            if self._incoming.is_broken:
                raise trio.ClosedResourceError("this end was closed")
            await self._readers.park()
        size_bytes = len(self._incoming.data) if max_bytes is None else max_bytes
        found = bytes(self._incoming.data[:size_bytes])
        del self._incoming.data[:size_bytes]
        return found

    def close_receiving(self) -> None:
        """Break the receiving direction: later sends to it fail."""
        self._incoming.is_broken = True
        self._transport.notice()
        self.wake()

    def close(self) -> None:
        """Close both directions at once."""
        self._outgoing.has_ended = True
        self.close_receiving()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def wake(self) -> None:
        """Wake tasks that receive."""
        self._readers.unpark_all()


@dataclass(frozen=True, slots=True)
class MemoryAccepted:
    transport: Transport
    peer_host: str
    local_address: str


class MemoryListener:
    """A listener. Peers connect by `connect()`."""

    __slots__ = ("_arrived", "_is_held", "_transports", "_waiting", "address")

    def __init__(self, address: tuple[str, int] = ("memory", 9092)) -> None:
        self.address = address
        self._is_held = False
        self._transports: WeakKeyDictionary[MemoryTransport, None] = WeakKeyDictionary()
        self._arrived, self._waiting = trio.open_memory_channel[MemoryAccepted](math.inf)

    def connect(self, peer_host: str = "127.0.0.1") -> MemoryStream:
        """Queue a connection and return the peer's end. Errors: ConnectionRefusedError when closed."""
        stream = MemoryStream()
        stream.transport.is_held = self._is_held
        self._transports[stream.transport] = None
        try:
            self._arrived.send_nowait(MemoryAccepted(stream.transport, peer_host, self.address[0]))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "memory listener closed") from error
        return stream

    def hold(self, is_held: bool) -> None:
        """Suspend or resume the broker behind the listener. Meanwhile, bytes from peers wait."""
        self._is_held = is_held
        for transport in list(self._transports):
            transport.is_held = is_held
            transport.notice()

    async def accept(self) -> MemoryAccepted:
        return await self._waiting.receive()

    def close(self) -> None:
        self._arrived.close()
        self._waiting.close()
