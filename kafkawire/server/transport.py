"""Moves bytes between a connection and its peer: a Protocol, and the implementation on sockets.

Why it exists: everything above sees only "receive into this buffer" and "send these segments", so the broker runs
unchanged on sockets, on memory streams (`kafkawire.server.memory_transport`) and, later, on TLS. Only this module knows
that a range of a file can go out by sendfile.

It works on non-blocking sockets and trio's readiness calls instead of trio's socket wrapper: waiting for readability
before every receive yields to other tasks exactly once per receive, and no receive is tried in vain first.

It refuses to know what the bytes mean, and to pad: a file that is shorter than its range promises ends the connection.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

import trio

from engine.api import FileRange
from kafkawire.requests.started import Segment

AddressT = TypeVar("AddressT", bound=tuple[Any, ...])  # of getaddrinfo, the family first

SLICE_SIZE_BYTES = 256 * 1024  # of a file, read at once where there is no sendfile
TURN_SIZE_BYTES = 2 * 1024 * 1024  # sent from files without waiting, before other connections get their turn: a ms
COALESCE_SIZE_BYTES = 16 * 1024  # below this joining segments costs less than handing them over one by one
MAX_VECTOR_SEGMENTS = 1024  # Linux IOV_MAX


class FileTooShortError(Exception):
    """A file ended before its range did: it was truncated under the reply."""


class Transport(Protocol):
    """One connection's bytes. Receiving and sending may be under way at the same time, each once."""

    sent_size_bytes: int  # ever; grows while a send is under way, which is how a slow reader is told from a dead one

    def receive_now(self, buffer: memoryview) -> int | None:
        """As `receive_into`, but None instead of waiting. Errors: OSError."""

    async def receive_into(self, buffer: memoryview) -> int:
        """Waits for bytes and returns how many; 0 at the end of the stream. Errors: OSError."""

    def send_now(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Hands over what can be without waiting, and returns the rest. Errors: OSError."""

    async def send_segments(self, segments: Sequence[Segment]) -> None:
        """Returns when all was handed over. Errors: OSError, FileTooShortError."""

    def close(self) -> None:
        """At once; what was handed over still arrives."""


class Accepted(Protocol):
    """A new connection: its transport, and the IP addresses of its two ends."""

    @property
    def transport(self) -> Transport: ...
    @property
    def peer_host(self) -> str: ...
    @property
    def local_address(self) -> str: ...


class Listener(Protocol):
    """Where connections come from. Exists before it is served, so that its port is known first."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def accept(self) -> Accepted:
        """The next connection. Errors: OSError, for example when descriptors ran out; the listener stays usable."""

    def close(self) -> None: ...


def read_slices(file_range: FileRange) -> Iterator[bytes]:
    """The range's bytes in portions, for where there is no sendfile. Errors: FileTooShortError."""
    position, end = file_range.position, file_range.position + file_range.size_bytes
    while position < end:
        piece = file_range.file.read_at(position, min(end - position, SLICE_SIZE_BYTES))
        if not piece:
            raise FileTooShortError(f"file ends at {position}, range at {end}")
        yield piece
        position += len(piece)


class SocketTransport:
    """A connected, non-blocking stream socket."""

    __slots__ = ("_sent_in_turn", "_socket", "sent_size_bytes")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._sent_in_turn = 0  # from files
        self.sent_size_bytes = 0

    def receive_now(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    async def receive_into(self, buffer: memoryview) -> int:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            received = self.receive_now(buffer)
            if received is not None:
                return received

    def send_now(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """What fits into the buffer of the socket; nothing when a range of a file is among the segments."""
        try:
            data = b"".join(segments)  # type: ignore[arg-type]  # or TypeError
        except TypeError:
            return segments
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        self.sent_size_bytes += sent
        return () if sent == len(data) else (data[sent:],)

    async def send_segments(self, segments: Sequence[Segment]) -> None:
        """Runs of memory go out together, ranges of files by sendfile."""
        memory: list[bytes | bytearray | memoryview] = []
        for segment in segments:
            if not isinstance(segment, FileRange):
                memory.append(segment)
                continue
            if memory:
                await self._send_memory(memory, socket.MSG_MORE)
                memory = []
            descriptor = segment.file.fileno()
            if descriptor is None:
                await self._send_read(segment)
            else:
                await self._send_file(descriptor, segment.position, segment.size_bytes)
        if memory:
            await self._send_memory(memory, 0)

    def close(self) -> None:
        self._socket.close()

    async def _send_memory(self, segments: Sequence[bytes | bytearray | memoryview], flags: int) -> None:
        size_bytes = sum(map(len, segments))
        if size_bytes <= COALESCE_SIZE_BYTES:
            segments = (b"".join(segments),)
        first, offset = 0, 0  # the segment to go on with, and where in it
        while size_bytes > 0:
            vector = [memoryview(segments[first])[offset:], *segments[first + 1 : first + MAX_VECTOR_SEGMENTS]]
            more = socket.MSG_MORE if first + len(vector) < len(segments) else flags
            try:
                sent = self._socket.sendmsg(vector, (), more)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_writable(self._socket)
                continue
            self.sent_size_bytes += sent
            size_bytes -= sent
            offset += sent
            while first < len(segments) and offset >= len(segments[first]):
                offset -= len(segments[first])
                first += 1

    async def _send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        end = position + size_bytes
        while position < end:
            if self._sent_in_turn >= TURN_SIZE_BYTES:
                await trio.lowlevel.checkpoint()
                self._sent_in_turn = 0
            count = min(end - position, TURN_SIZE_BYTES - self._sent_in_turn)
            try:
                sent = os.sendfile(self._socket.fileno(), descriptor, position, count)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_writable(self._socket)
                self._sent_in_turn = 0
                continue
            if sent == 0:
                raise FileTooShortError(f"file ends at {position}, range at {end}")
            self.sent_size_bytes += sent
            self._sent_in_turn += sent
            position += sent

    async def _send_read(self, file_range: FileRange) -> None:
        for piece in read_slices(file_range):
            await self._send_memory([piece], 0)
            await trio.lowlevel.checkpoint()


class SocketAccepted:
    __slots__ = ("local_address", "peer_host", "transport")

    def __init__(self, connected: socket.socket, peer_host: str) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # as Kafka's Acceptor
        self.transport: Transport = SocketTransport(connected)
        self.peer_host = _plain_ip(peer_host)
        self.local_address = _plain_ip(connected.getsockname()[0])


def _plain_ip(address: str) -> str:
    """On a dual-stack socket IPv4 addresses come dressed as IPv6."""
    return address.removeprefix("::ffff:")


class SocketListener:
    """A bound TCP socket that already queues connections."""

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
            except OSError:  # gone before it was ours
                connected.close()

    def close(self) -> None:
        self._socket.close()


async def open_listener(host: str, port: int) -> SocketListener:
    """See `listening_socket`."""
    return SocketListener(await listening_socket(host, port))


async def listening_socket(host: str, port: int, backlog: int = 50) -> socket.socket:
    """Binds and listens. An empty host is every interface, with IPv6 where there is any; port 0: the system chooses. Of
    a name's addresses it is the first of IPv4, if there is one, as for Java: `localhost` may be both.

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
    """Of what getaddrinfo has found: as it comes, but IPv4 first."""
    return min(found, key=lambda one: one[0] != socket.AF_INET)
