"""Kafka's frames over a trio stream, as a client sends and receives them."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkawire.wire.primitives import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import trio

RECEIVE_SIZE_BYTES: Final = 64 * 1024

_SIZE: Final = Struct(">i")
_REPLY_SIZE_MIN_BYTES: Final = 4  # the correlation id


class FrameStream:
    """One connection. What breaks raises what trio's streams raise."""

    def __init__(self, stream: trio.abc.Stream, reply_max_bytes: int) -> None:
        self._stream = stream
        self._reply_max_bytes = reply_max_bytes
        self._received = bytearray()

    async def send(self, frames: Iterable[bytes]) -> None:
        """One behind the other."""
        await self._stream.send_all(b"".join(part for one in frames for part in (_SIZE.pack(len(one)), one)))

    async def receive(self) -> bytearray:
        """One without its size. Raises DecodeError for an impossible size, ConnectionResetError at the end."""
        (size_bytes,) = _SIZE.unpack(await self._take(_SIZE.size))
        if not _REPLY_SIZE_MIN_BYTES <= size_bytes <= self._reply_max_bytes:
            raise DecodeError(f"a reply of {size_bytes} bytes")
        return await self._take(size_bytes)

    async def _take(self, size_bytes: int) -> bytearray:
        while len(self._received) < size_bytes:
            data = await self._stream.receive_some(RECEIVE_SIZE_BYTES)
            if not data:
                raise ConnectionResetError("closed by the broker")
            self._received += data
        taken = self._received[:size_bytes]
        del self._received[:size_bytes]
        return taken
