"""Divides a byte stream into Kafka's frames: a four-byte size, then that many bytes.

Why it exists: a frame becomes the buffer from which the engine writes to disk. So each frame is returned as a bytearray
that nothing else changes. And a peer must send bytes for memory: an announced size alone costs nothing.

Small frames are received into one chunk per connection and cut out of it with one copy. A frame that does not fit into
the chunk moves to a buffer of its own, into which the rest is received directly. That buffer grows by a fixed factor
over the received bytes, so it never holds more than `GROWTH` times of them. Only a peer that has already delivered such
a frame gets up to `TRUSTED_SIZE_BYTES` at once.

The framer does not decode frames.
"""

from __future__ import annotations

from struct import Struct

CHUNK_SIZE_BYTES = 64 * 1024
IDLE_CHUNK_SIZE_BYTES = 4 * 1024  # the memory of a connection that never sent more
GROWTH = 4
TRUSTED_SIZE_BYTES = 1024 * 1024  # spares the usual large frame the steps of growth
_TLS_HANDSHAKE = 0x1603  # the first two bytes of a ClientHello
HEADER_SIZE_BYTES = 8  # api key, version, correlation id: no request is shorter

_SIZE = Struct(">i")
_SIZE_SIZE_BYTES = 4


class FramingError(Exception):
    """The announced size is impossible; the stream cannot be read any further."""


class Framer:
    """Receive buffer of one connection.

    `buffer()` lends a view to receive into, and `received(n)` tells how much of it was filled. Between the two,
    `next_frame()` may be called, but `buffer()` may not. Release the view before the next call of `buffer()`.
    """

    __slots__ = (
        "_chunk",
        "_end",
        "_is_filled",
        "_large",
        "_large_filled",
        "_large_size",
        "_start",
        "_trusted_size",
        "large_size_bytes",
        "max_frame_size_bytes",
        "partial_size_bytes",
    )

    def __init__(self, max_frame_size_bytes: int) -> None:
        self.max_frame_size_bytes = max_frame_size_bytes
        self._chunk = bytearray(IDLE_CHUNK_SIZE_BYTES)
        self._start = 0  # first byte not yet handed out
        self._end = 0  # end of the received bytes
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0
        self._trusted_size = 0
        self._is_filled = False  # whether the last receive has filled the chunk
        self.large_size_bytes = 0  # memory of the frame that has a buffer of its own
        self.partial_size_bytes = 0  # held and not handed out by `next_frame()`

    @property
    def has_room(self) -> bool:
        """Whether bytes can be received. False while complete frames fill the buffer, until one is taken."""
        if self._large is not None:
            return self._large_filled < self._large_size
        if self._start > 0 or self._end < len(self._chunk):
            return True
        front_size_bytes: int = _SIZE.unpack_from(self._chunk)[0]
        return front_size_bytes > len(self._chunk) - _SIZE.size

    @property
    def wants_large_buffer(self) -> bool:
        """Whether the next bytes belong to a frame that has a buffer of its own, or would get one."""
        return self._large is not None or (self._start == 0 and self._end == CHUNK_SIZE_BYTES)

    def buffer(self) -> memoryview:
        """View for the next bytes; needs `has_room`.

        Errors: FramingError when the frame that would need a larger buffer has an impossible size.
        """
        if self._large is None:
            self._make_room()
        if self._large is None:
            return memoryview(self._chunk)[self._end :]
        if self._large_filled == len(self._large):
            self._large.extend(bytes(self._next_capacity() - self._large_filled))
            self.large_size_bytes = len(self._large)
        return memoryview(self._large)[self._large_filled :]

    def received(self, size_bytes: int) -> None:
        """Note that so many bytes of the view lent by `buffer()` were filled."""
        self.partial_size_bytes += size_bytes
        if self._large is None:
            self._end += size_bytes
            self._is_filled = self._end == len(self._chunk)
            assert self._end <= len(self._chunk)
        else:
            self._large_filled += size_bytes
            assert self._large_filled <= len(self._large)

    def next_frame(self) -> bytearray | None:
        """The next complete frame without its size; None if more bytes are needed.

        Bytes in the chunk never move, because a receive into its tail may be under way.

        Errors: FramingError for an impossible size.
        """
        if self._large is not None:
            if self._large_filled < self._large_size:
                return None
            frame, self._large = self._large, None
            self.large_size_bytes = self.partial_size_bytes = 0
            self._trusted_size = max(self._trusted_size, min(self._large_size, TRUSTED_SIZE_BYTES))
            return frame
        if self.partial_size_bytes < _SIZE_SIZE_BYTES:
            return None
        size_bytes: int = _SIZE.unpack_from(self._chunk, self._start)[0]
        if not HEADER_SIZE_BYTES <= size_bytes <= self.max_frame_size_bytes:
            raise _impossible(size_bytes, self.max_frame_size_bytes)
        first = self._start + _SIZE_SIZE_BYTES
        end = first + size_bytes
        if end > self._end:
            return None
        self._start = end
        self.partial_size_bytes = self._end - end
        return self._chunk[first:end]

    def _announced_size(self) -> int:
        size_bytes: int = _SIZE.unpack_from(self._chunk, self._start)[0]
        if not HEADER_SIZE_BYTES <= size_bytes <= self.max_frame_size_bytes:
            raise _impossible(size_bytes, self.max_frame_size_bytes)
        return size_bytes

    def _next_capacity(self) -> int:
        return min(self._large_size, max(GROWTH * self._large_filled, self._trusted_size))

    def _make_room(self) -> None:
        """Make free space behind `_end`, or move the frame at the front into a buffer of its own."""
        chunk = self._chunk
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start > 0 and self._end > len(chunk) // 2:
            held = self._end - self._start
            chunk[:held] = chunk[self._start : self._end]
            self._start, self._end = 0, held
        if self._is_filled and len(chunk) < CHUNK_SIZE_BYTES:
            chunk.extend(bytes(CHUNK_SIZE_BYTES - len(chunk)))  # more bytes may be in the chunk than its usual size
        if self._end < len(chunk):
            return
        self._large_size = self._announced_size()
        self._large_filled = self.partial_size_bytes = self._end - _SIZE.size
        assert self._large_size > self._large_filled, "buffer() needs has_room"
        self._large = bytearray(self._next_capacity())
        self.large_size_bytes = len(self._large)
        with memoryview(self._large) as target, memoryview(chunk) as source:
            target[: self._large_filled] = source[_SIZE.size :]
        self._start = self._end = 0


def _impossible(size_bytes: int, max_size_bytes: int) -> FramingError:
    hint = "; the peer speaks TLS" if size_bytes >> 16 == _TLS_HANDSHAKE else ""
    return FramingError(f"frame of {size_bytes} bytes, allowed {HEADER_SIZE_BYTES} to {max_size_bytes}{hint}")
