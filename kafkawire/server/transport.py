"""Moves bytes between a connection and its peer: a Protocol, and the implementation on sockets.

Why it exists: the layers above see only "receive into this buffer" and "send these segments". Neither waits. So the
broker runs unchanged on sockets, on memory streams (`kafkawire.server.memory_transport`) and on TLS. Only this
module knows that a range of a file can go out by sendfile.

The transport does not know the meaning of the bytes, and does not pad: a file that is shorter than its range ends the
connection.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import trio

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server.poller import Poller, Watcher

AddressT = TypeVar("AddressT", bound=tuple[Any, ...])  # a result of getaddrinfo: the family comes first

SLICE_SIZE_BYTES = 256 * 1024  # of a file, read at once if there is no sendfile
TURN_SIZE_BYTES = 2 * 1024 * 1024  # sent at once, before the turn of other connections: about 1 ms
MAX_VECTOR_SEGMENTS = 1024  # Linux IOV_MAX


class FileTooShortError(Exception):
    """A file ended before its range did: it was truncated under the reply."""


class Transport(Protocol):
    """The byte stream of one connection."""

    @property
    def sent_size_bytes(self) -> int:
        """Bytes sent since the start."""
        ...

    @property
    def holds_received(self) -> bool:
        """Whether there are received bytes that the poller does not report."""
        ...

    def watch(self, poller: Poller, watcher: Watcher, events: int) -> None:
        """Report READ, WRITE, both or, for now, no events to `watcher`. Errors: OSError, for lack of descriptors."""

    def receive(self, buffer: memoryview) -> int | None:
        """Receive into the buffer.

        The number of bytes: 0 at the end of the stream, None if there are none yet. Errors: OSError.
        """

    def send(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Send as much as possible, about `TURN_SIZE_BYTES` at most, and return the rest.

        Errors: OSError, FileTooShortError.
        """

    def finish(self) -> None:
        """Send the end of the stream behind all sent bytes; receiving goes on. Errors: OSError."""

    def close(self) -> None:
        """Close at once. Sent bytes still arrive, unless bytes of the peer were not received."""


class Accepted(Protocol):
    """A new connection: its transport, and the IP addresses of its two ends."""

    @property
    def transport(self) -> Transport: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def local_address(self) -> str: ...


class Listener(Protocol):
    """Source of connections. It exists before it is served, so that its port is known."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def accept(self) -> Accepted:
        """The next connection. Errors: OSError, for example for lack of descriptors; the listener stays usable."""

    def close(self) -> None: ...


def read_slices(file_range: FileRange) -> Iterator[bytes]:
    """Read the range in portions, if there is no sendfile. Errors: FileTooShortError."""
    position, end = file_range.position, file_range.position + file_range.size_bytes
    while position < end:
        piece = file_range.file.read_at(position, min(end - position, SLICE_SIZE_BYTES))
        if not piece:
            raise FileTooShortError(f"file ends at {position}, range at {end}")
        yield piece
        position += len(piece)


class SocketTransport:
    """A connected, non-blocking stream socket."""

    holds_received = False
    __slots__ = ("_events", "_poller", "_socket", "sent_size_bytes")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._poller: Poller | None = None
        self._events = 0
        self.sent_size_bytes = 0

    def watch(self, poller: Poller, watcher: Watcher, events: int) -> None:
        self._poller = poller
        if events != self._events:
            if events:
                poller.watch(self._socket.fileno(), watcher, events)
            else:
                poller.unwatch(self._socket.fileno())
            self._events = events

    def receive(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        try:
            data = b"".join(segments)  # type: ignore[arg-type]
        except TypeError:  # a range of a file is among them
            return self._send_mixed(segments)
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return (data,)
        self.sent_size_bytes += sent
        return () if sent == len(data) else (memoryview(data)[sent:],)

    def finish(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._poller is not None and self._events:
            self._poller.unwatch(self._socket.fileno())
        self._socket.close()

    def _send_mixed(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Send runs of memory together, and ranges of files by sendfile."""
        room_bytes = TURN_SIZE_BYTES
        rest = deque(segments)
        while rest and room_bytes > 0:
            first = rest[0]
            if not len(first):
                rest.popleft()
                continue
            if isinstance(first, FileRange):
                descriptor = first.file.fileno()
                if descriptor is None:
                    rest.popleft()
                    rest.extendleft(reversed(list(read_slices(first))))
                    continue
                sent = self._send_file(descriptor, first.position, min(first.size_bytes, room_bytes))
                wanted_bytes = min(first.size_bytes, room_bytes)
            else:
                run = _memory_in_front(rest)
                sent = self._send_vector(run, socket.MSG_MORE if len(run) < len(rest) else 0)
                wanted_bytes = sum(map(len, run))
            room_bytes -= sent
            _drop(rest, sent)
            if sent < wanted_bytes:
                break
        return rest

    def _send_vector(self, run: Sequence[bytes | bytearray | memoryview], flags: int) -> int:
        try:
            sent = self._socket.send(run[0], flags) if len(run) == 1 else self._socket.sendmsg(run, (), flags)
        except (BlockingIOError, InterruptedError):
            return 0
        self.sent_size_bytes += sent
        return sent

    def _send_file(self, descriptor: int, position: int, size_bytes: int) -> int:
        try:
            sent = os.sendfile(self._socket.fileno(), descriptor, position, size_bytes)
        except (BlockingIOError, InterruptedError):
            return 0
        if sent == 0:
            raise FileTooShortError(f"file ends at {position}, range {size_bytes} bytes behind it")
        self.sent_size_bytes += sent
        return sent


def _memory_in_front(segments: Iterable[Segment]) -> list[bytes | bytearray | memoryview]:
    run: list[bytes | bytearray | memoryview] = []
    for segment in segments:
        if isinstance(segment, FileRange) or len(run) == MAX_VECTOR_SEGMENTS:
            break
        run.append(segment)
    return run


def _drop(segments: deque[Segment], size_bytes: int) -> None:
    """Remove sent bytes from the front, and empty segments there."""
    while segments and size_bytes >= len(segments[0]):
        size_bytes -= len(segments.popleft())
    if size_bytes:
        first = segments[0]
        if isinstance(first, FileRange):
            segments[0] = FileRange(first.file, first.position + size_bytes, first.size_bytes - size_bytes)
        else:
            segments[0] = memoryview(first)[size_bytes:]


class SocketAccepted:
    __slots__ = ("local_address", "peer_host", "transport")

    def __init__(self, connected: socket.socket, peer_host: str) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # like Kafka's Acceptor
        self.transport: Transport = SocketTransport(connected)
        self.peer_host = _plain_ip(peer_host)
        self.local_address = _plain_ip(connected.getsockname()[0])


def _plain_ip(address: str) -> str:
    """Remove the IPv6 prefix that IPv4 addresses have on a dual-stack socket."""
    return address.removeprefix("::ffff:")


class SocketListener:
    """A bound TCP socket that queues connections."""

    __slots__ = ("_socket", "address")

    def __init__(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._socket = listening
        self.address: tuple[str, int] = listening.getsockname()[:2]

    async def accept(self) -> SocketAccepted:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                connected, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                continue
            try:
                return SocketAccepted(connected, peer[0])
            except OSError:  # gone before it was accepted
                connected.close()

    def close(self) -> None:
        self._socket.close()


async def open_listener(host: str, port: int) -> SocketListener:
    """See `listening_socket`."""
    return SocketListener(await listening_socket(host, port))


async def listening_socket(host: str, port: int, backlog: int = 50) -> socket.socket:
    """Bind and listen. An empty host means every interface, with IPv6 if there is any; port 0: the system chooses.

    Of a name's addresses the first IPv4 address is taken, if there is one, as in Java: `localhost` may be both.

    Errors: OSError (address in use, not ours, unresolvable).
    """
    if host == "":
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=both)
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = first_choice(found)
    return socket.create_server(address[:2], family=family, backlog=backlog)


def first_choice(found: Sequence[AddressT]) -> AddressT:
    """The first IPv4 result of getaddrinfo, else the first one."""
    return min(found, key=lambda one: one[0] != socket.AF_INET)
