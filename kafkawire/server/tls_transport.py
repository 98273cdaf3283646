"""TLS as a transport around any transport: an SSLObject of Python between two buffers in memory.

Why it exists: the session sees plain bytes, and OpenSSL does no I/O. So TLS runs on sockets and on memory streams, and
needs no descriptor.

The handshake goes in steps (`kafkawire.server.handshakes` runs them in the crypto thread). Between `feed` and `step`,
and during a step, nothing else may touch the transport. The session gets it when the handshake is done.

Receiving: encrypted bytes go through one buffer that all connections share. OpenSSL may hold bytes that are decrypted,
or a whole record, while the socket has none; no poller reports them. `holds_received` tells it.

Sending: up to `TURN_SIZE_BYTES` are encrypted at once, in records of 16 KiB. Encrypted bytes for which the peer has no
room are kept, and are the first segment of the rest. OpenSSL would otherwise send old bytes for new ones.
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
TURN_SIZE_BYTES: Final = 512 * 1024  # encrypted at once, before the turn of other connections
UNSENT_MAX_BYTES: Final = 64 * 1024  # of answers of TLS to a peer that renews its keys, and reads nothing

_RECEIVED: Final = memoryview(bytearray(64 * 1024))  # encrypted bytes on their way; shared, because nothing stays there
_FILE_SLICE: Final = memoryview(bytearray(256 * 1024))  # bytes of a file on their way; shared likewise


class TlsTransport:
    """A connection that speaks TLS. Errors of TLS are ssl.SSLError, which is an OSError."""

    __slots__ = ("_decrypted", "_encrypted", "_has_ended", "_tls", "_transport", "_unsent", "holds_received")

    def __init__(self, transport: Transport, context: ssl.SSLContext) -> None:
        self._transport = transport
        self._encrypted, self._decrypted = ssl.MemoryBIO(), ssl.MemoryBIO()  # from the peer, to the peer
        self._tls = context.wrap_bio(self._encrypted, self._decrypted, server_side=True)
        self._unsent = bytearray()  # one object for good: it is recognised in the rest that comes back
        self._has_ended = False  # the peer has said that nothing follows
        self.holds_received = False

    # The handshake

    def feed(self) -> bool:
        """Take the bytes that have arrived, at most a buffer of them. Returns whether there were any. Raises OSError:
        an EOFError is none, so the end of the stream is a ConnectionResetError."""
        size_bytes = self._transport.receive(_RECEIVED)
        if size_bytes == 0:
            raise ConnectionResetError("the peer has left during the handshake")
        self._encrypted.write(_RECEIVED[: size_bytes or 0])
        return bool(size_bytes)

    def step(self) -> bool:
        """Go on with the handshake as far as the bytes go. Returns whether it is done. Runs in any thread. Raises
        ssl.SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.holds_received = bool(self._encrypted.pending)
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
        """Decrypt what has arrived. An attempt to read a record that is not whole costs an exception, so there is none
        without new bytes; and a receive that does not fill the shared buffer is the last one."""
        received, may_have_more = 0, True
        while received < len(buffer) and not self._has_ended:
            if self._encrypted.pending or self._tls.pending():
                try:
                    size_bytes = self._read(buffer[received:])
                except ssl.SSLWantReadError:
                    continue  # the rest of a record is not there: it has left the buffer, and waits in OpenSSL
                self._has_ended = not size_bytes
                received += size_bytes
                continue
            arrived = self._transport.receive(_RECEIVED) if may_have_more else None
            if not arrived:
                self.holds_received = False
                self._answer_peer()
                return received or arrived
            self._encrypted.write(_RECEIVED[:arrived])
            may_have_more = arrived == len(_RECEIVED)
        self.holds_received = bool(received == len(buffer) and (self._encrypted.pending or self._tls.pending()))
        return received

    def send(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        rest = list(segments)
        if self._unsent:
            if rest and rest[0] is self._unsent:
                del rest[0]
            self._push()
        room_bytes = TURN_SIZE_BYTES
        while rest and room_bytes > 0 and not self._unsent:
            rest, room_bytes = self._encrypt(rest, room_bytes)
            self._push()
        return [self._unsent, *rest] if self._unsent else rest

    def finish(self) -> None:
        with suppress(ssl.SSLWantReadError):  # the peer need not say the same
            self._tls.unwrap()
        self._push()
        self._transport.finish()

    def close(self) -> None:
        self._transport.close()

    def _read(self, buffer: memoryview) -> int:
        """Bytes of one record; 0: the peer says that nothing follows. Raises ssl.SSLWantReadError."""
        with suppress(ssl.SSLZeroReturnError):
            return cast("int", self._tls.read(len(buffer), buffer))  # with a buffer, the number comes back
        return 0

    def _encrypt(self, segments: list[Segment], room_bytes: int) -> tuple[list[Segment], int]:
        """Encrypt segments from the front. Returns the others, and the room that is left."""
        done = 0
        run: list[bytes | bytearray | memoryview] = []
        for segment in segments:
            if room_bytes <= 0:
                break
            if isinstance(segment, FileRange):
                self._write(b"".join(run))
                run = []
                wanted = min(segment.size_bytes, room_bytes)
                self._write_file(segment, wanted)
                room_bytes -= wanted
                if wanted < segment.size_bytes:
                    left = FileRange(segment.file, segment.position + wanted, segment.size_bytes - wanted)
                    return [left, *segments[done + 1 :]], room_bytes
            else:
                taken = min(len(segment), room_bytes)
                run.append(segment if taken == len(segment) else memoryview(segment)[:taken])
                room_bytes -= taken
                if taken < len(segment):
                    self._write(b"".join(run))
                    return [memoryview(segment)[taken:], *segments[done + 1 :]], room_bytes
            done += 1
        self._write(b"".join(run))
        return segments[done:], room_bytes

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        for position in range(0, len(view), RECORD_SIZE_BYTES):
            self._tls.write(view[position : position + RECORD_SIZE_BYTES])

    def _write_file(self, file_range: FileRange, size_bytes: int) -> None:
        wanted = FileRange(file_range.file, file_range.position, size_bytes)
        for piece in _pieces(wanted):
            self._write(piece)

    def _push(self) -> None:
        """Send encrypted bytes as far as the peer has room, older ones first."""
        if self._unsent:
            del self._unsent[: self._sent(bytes(self._unsent))]
        if self._decrypted.pending and not self._unsent:
            data = self._decrypted.read()
            self._unsent += memoryview(data)[self._sent(data) :]

    def _sent(self, data: bytes) -> int:
        """Send data as far as the peer has room. Returns the number of sent bytes."""
        return len(data) - sum(map(len, self._transport.send([data])))

    def _answer_peer(self) -> None:
        """Send what TLS itself has to answer, such as a renewal of keys."""
        if self._decrypted.pending:
            self._push()
            if self._decrypted.pending + len(self._unsent) > UNSENT_MAX_BYTES:
                raise ConnectionAbortedError("the peer does not read what TLS answers")


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
