"""TLS as a transport around any transport: an SSLObject of Python between two buffers in memory.

Why it exists: the session sees plain bytes, and OpenSSL does no I/O. So TLS runs on sockets and on memory streams, and
needs no descriptor.

The handshake goes in steps (`kafkawire.server.handshakes` runs them in the crypto thread). Between `feed` and `step`,
and during a step, nothing else may touch the transport. The session gets it when the handshake is done.

Receiving: OpenSSL may hold bytes that are decrypted, or whole records, while the socket has none; no poller reports
them. `holds_received` tells it. The work of a call is bounded: a peer may send records without data, which renew keys
and cost time. The buffers of OpenSSL never shrink, so that they get a record or two at a time.

Sending: up to `TURN_SIZE_BYTES` are encrypted in a turn, and `SEND_SIZE_BYTES` before a send. Encrypted bytes for which
the peer has no room are kept, and are the first segment of the rest. OpenSSL would otherwise send old bytes for new
ones.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, cast

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server.poller import Poller, Watcher
from kafkawire.server.transport import FileTooShortError, Transport, read_slices

RECORD_SIZE_BYTES: Final = 16 * 1024  # the most that one record of TLS has
SEND_SIZE_BYTES: Final = 128 * 1024  # encrypted before a send; a peer that does not read holds as much
TURN_SIZE_BYTES: Final = 512 * 1024  # sent at once, before the turn of other connections
READS_MAX: Final = 64  # of records, in one receive
RECEIVES_MAX: Final = 32  # of encrypted bytes, in one receive
WITHOUT_DATA_MAX_BYTES: Final = 64 * 1024  # of records one behind the other that have no data
UNSENT_MAX_BYTES: Final = 64 * 1024  # of answers of TLS to a peer that renews its keys, and reads nothing

_RECEIVED: Final = memoryview(bytearray(RECORD_SIZE_BYTES))  # encrypted bytes on their way; shared: nothing stays there
_FILE_SLICE: Final = memoryview(bytearray(SEND_SIZE_BYTES))  # bytes of a file on their way; shared likewise


class TlsTransport:
    """A connection that speaks TLS. Errors of TLS are ssl.SSLError, which is an OSError."""

    __slots__ = (
        "_has_ended",
        "_incoming",
        "_is_finished",
        "_outgoing",
        "_tls",
        "_transport",
        "_unsent",
        "_without_data_size_bytes",
        "holds_received",
    )

    def __init__(self, transport: Transport, context: ssl.SSLContext) -> None:
        """Raises ssl.SSLError."""
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()  # encrypted bytes from and to the peer
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = bytearray()  # one object for good: it is recognised in the rest that comes back
        self._without_data_size_bytes = 0  # received since the last data
        self._has_ended = False  # the peer has said that nothing follows
        self._is_finished = False  # nothing more is sent; what is received does not count
        self.holds_received = False

    # The handshake

    def feed(self) -> None:
        """Take the bytes that have arrived, at most a buffer of them. Raises OSError: ConnectionResetError at the end
        of the stream."""
        size_bytes = self._transport.receive(_RECEIVED)
        if size_bytes == 0:
            raise ConnectionResetError("the peer has left during the handshake")
        self._incoming.write(_RECEIVED[: size_bytes or 0])

    def step(self) -> bool:
        """Go on with the handshake as far as the bytes go. Returns whether it is done. Runs in any thread. Raises
        ssl.SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.holds_received = bool(self._incoming.pending)
        return True

    def flush(self) -> bool:
        """Send the bytes of the handshake. Returns whether all are sent. Raises OSError."""
        self._push()
        return not self._unsent

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate in DER form, once the handshake is done; None: it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The version of TLS, such as TLSv1.3."""
        return self._tls.version() or "unknown"

    @property
    def cipher(self) -> str:
        """The cipher suite by OpenSSL's name."""
        found = self._tls.cipher()
        return "unknown" if found is None else found[0]

    # As a Transport

    @property
    def sent_size_bytes(self) -> int:
        return self._transport.sent_size_bytes

    def watch(self, poller: Poller, watcher: Watcher, events: int) -> None:
        self._transport.watch(poller, watcher, events)

    def receive(self, buffer: memoryview) -> int | None:
        """Decrypt what has arrived. Without new bytes there is no attempt to read, which would cost an exception. A
        receive that does not fill its buffer is the last one."""
        if self._is_finished:
            return self._transport.receive(buffer)
        received = reads = receives = 0
        may_have_more = True
        while received < len(buffer) and not self._has_ended:
            if self._holds_bytes and reads < READS_MAX:
                reads += 1
                received += self._read(buffer[received:])
                continue
            is_idle = receives > 0 and self._without_data_size_bytes > RECORD_SIZE_BYTES
            if is_idle or reads >= READS_MAX or receives >= RECEIVES_MAX:
                self.holds_received = True
                return received or None
            arrived = self._transport.receive(_RECEIVED) if may_have_more else None
            if not arrived:
                self.holds_received = False
                return received or arrived
            self._take(arrived)
            receives += 1
            may_have_more = arrived == len(_RECEIVED)
        is_full = received == len(buffer)
        self.holds_received = bool(received) and (self._has_ended or (is_full and self._holds_bytes))
        return received

    def send(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        rest = list(segments)
        if self._unsent:
            if rest and rest[0] is self._unsent:
                del rest[0]
            self._push()
        room_bytes = TURN_SIZE_BYTES
        while rest and room_bytes > 0 and not self._unsent:
            records: list[bytes] = []
            rest = self._encrypt(rest, SEND_SIZE_BYTES, records)
            room_bytes -= SEND_SIZE_BYTES
            self._send(b"".join(records))
        return [self._unsent, *rest] if self._unsent else rest

    def finish(self) -> None:
        with suppress(ssl.SSLError):  # the peer need not say the same, and may have sent more
            self._tls.unwrap()
        self._is_finished = True
        self.holds_received = False
        self._push()
        self._transport.finish()

    def close(self) -> None:
        self._transport.close()

    @property
    def _holds_bytes(self) -> bool:
        return bool(self._incoming.pending or self._tls.pending())

    def _take(self, size_bytes: int) -> None:
        """Take encrypted bytes. Raises OSError if they follow too many others without data."""
        self._without_data_size_bytes += size_bytes
        if self._without_data_size_bytes > WITHOUT_DATA_MAX_BYTES:
            raise ConnectionAbortedError("the records of TLS carry no data")
        self._incoming.write(_RECEIVED[:size_bytes])

    def _read(self, buffer: memoryview) -> int:
        """The bytes of one record, if one is whole; notes the end. Raises OSError."""
        size_bytes = 0
        try:
            size_bytes = cast("int", self._tls.read(len(buffer), buffer))  # with a buffer, the number comes back
            self._has_ended = not size_bytes
        except ssl.SSLWantReadError:
            pass  # the rest of a record is not there: its beginning has left the buffer, and waits in OpenSSL
        except ssl.SSLZeroReturnError:
            self._has_ended = True
        if size_bytes:
            self._without_data_size_bytes = 0
        if self._outgoing.pending:
            self._answer_peer()
        return size_bytes

    def _answer_peer(self) -> None:
        """Send what TLS itself has to answer, such as a renewal of keys. Raises OSError."""
        self._push()
        if self._outgoing.pending > UNSENT_MAX_BYTES:
            raise ConnectionAbortedError("the peer does not read what TLS answers")

    def _encrypt(self, segments: list[Segment], room_bytes: int, records: list[bytes]) -> list[Segment]:
        """Encrypt segments from the front, into records. Returns the others."""
        run: list[bytes | bytearray | memoryview] = []
        for number, segment in enumerate(segments):
            if room_bytes <= 0:
                self._write(b"".join(run), records)
                return segments[number:]
            taken = min(len(segment), room_bytes)
            room_bytes -= taken
            if isinstance(segment, FileRange):
                self._write(b"".join(run), records)
                run.clear()
                for piece in _pieces(FileRange(segment.file, segment.position, taken)):
                    self._write(piece, records)
            else:
                run.append(memoryview(segment)[:taken])
            if taken < len(segment):
                self._write(b"".join(run), records)
                return [_behind(segment, taken), *segments[number + 1 :]]
        self._write(b"".join(run), records)
        return []

    def _write(self, data: bytes | memoryview, records: list[bytes]) -> None:
        """Encrypt data. Each record leaves OpenSSL's buffer at once, with what TLS had to answer before it."""
        view = memoryview(data)
        for position in range(0, len(view), RECORD_SIZE_BYTES):
            self._tls.write(view[position : position + RECORD_SIZE_BYTES])
            records.append(self._outgoing.read())

    def _push(self) -> None:
        """Send encrypted bytes as far as the peer has room, older ones first."""
        if self._unsent:
            data = bytes(self._unsent)
            self._unsent.clear()
            self._send(data)
        if self._outgoing.pending and not self._unsent:
            self._send(self._outgoing.read())

    def _send(self, data: bytes) -> None:
        """Send data as far as the peer has room, and keep the rest."""
        left_size_bytes = sum(map(len, self._transport.send([data])))
        if left_size_bytes:
            self._unsent += memoryview(data)[len(data) - left_size_bytes :]


def _behind(segment: Segment, size_bytes: int) -> Segment:
    """The segment without its first bytes."""
    if isinstance(segment, FileRange):
        return FileRange(segment.file, segment.position + size_bytes, segment.size_bytes - size_bytes)
    return memoryview(segment)[size_bytes:]


def _pieces(file_range: FileRange) -> Iterator[bytes | memoryview]:
    """The bytes of a range of a file, in a buffer that the next piece uses again. Raises FileTooShortError."""
    descriptor = file_range.file.fileno()
    if descriptor is None:
        yield from read_slices(file_range)
        return
    position, end = file_range.position, file_range.position + file_range.size_bytes
    while position < end:
        size_bytes = os.preadv(descriptor, [_FILE_SLICE[: min(end - position, len(_FILE_SLICE))]], position)
        if not size_bytes:
            raise FileTooShortError(f"file ends at {position}, range at {end}")
        yield _FILE_SLICE[:size_bytes]
        position += size_bytes
