"""Kafka's frames over a trio stream, on the client's side."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import trio

from kafkawire.wire.primitives import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

AHEAD_SIZE_BYTES: Final = 64 * 1024  # received at once while the frame's size is unknown; most frames fit

_SIZE: Final = Struct(">i")
_REPLY_SIZE_MIN_BYTES: Final = 4  # the correlation id


class FrameStream:
    """The frames of one connection. Failures raise the exceptions of trio's streams and sockets."""

    def __init__(self, stream: trio.abc.Stream, reply_max_bytes: int) -> None:
        self._stream = stream
        self._reply_max_bytes = reply_max_bytes
        self._ahead = bytearray()

    async def send(self, frames: Iterable[bytes]) -> None:
        """Send the frames, one after the other."""
        await self._stream.send_all(b"".join(part for one in frames for part in (_SIZE.pack(len(one)), one)))

    async def receive(self) -> bytearray:
        """Receive a frame, without its size. Raises DecodeError for an impossible size, ConnectionResetError at the
        end."""
        while len(self._ahead) < _SIZE.size:
            self._ahead += _not_empty(await self._stream.receive_some(AHEAD_SIZE_BYTES))
        (size_bytes,) = _SIZE.unpack_from(self._ahead)
        if not _REPLY_SIZE_MIN_BYTES <= size_bytes <= self._reply_max_bytes:
            raise DecodeError(f"a reply of {size_bytes} bytes")
        end = _SIZE.size + size_bytes
        frame = self._ahead[_SIZE.size : end]
        del self._ahead[:end]
        return frame if len(frame) == size_bytes else await self._receive_rest(frame, size_bytes)

    async def _receive_rest(self, start: bytearray, size_bytes: int) -> bytearray:
        """Receive the rest of a frame directly into its own memory: it may be megabytes of records."""
        frame, filled = bytearray(size_bytes), len(start)  # the kernel allocates its pages when they are filled
        frame[:filled] = start
        view = memoryview(frame)
        while filled < size_bytes:
            filled += await self._receive_into(view[filled:])
        return frame

    async def _receive_into(self, room: memoryview) -> int:
        if not isinstance(self._stream, trio.SocketStream):
            data = _not_empty(await self._stream.receive_some(len(room)))
            room[: len(data)] = data
            return len(data)
        count = await self._stream.socket.recv_into(room)
        if not count:
            raise ConnectionResetError("closed by the broker")
        return count


def _not_empty(data: bytes | bytearray) -> bytes | bytearray:
    if not data:
        raise ConnectionResetError("closed by the broker")
    return data
