"""Frames are received as they were sent, in any pieces, and impossible frames are refused."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import trio
import trio.testing

from kafkawire.peers.frames import AHEAD_SIZE_BYTES, FrameStream
from kafkawire.wire.primitives import DecodeError

MAX_BYTES = 4 * AHEAD_SIZE_BYTES


class Pair(NamedTuple):
    """The two ends of a connection."""

    near: trio.abc.Stream
    far: trio.abc.Stream


@pytest.fixture(params=["sockets", "memory"])
async def pair(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[Pair]:
    """A connection. Over sockets large frames are received directly into their own memory."""
    ends = [*map(trio.SocketStream, trio.socket.socketpair())] if request.param == "sockets" else []
    found = Pair(*(ends or trio.testing.lockstep_stream_pair()))
    yield found
    for end in found:
        await trio.aclose_forcefully(end)


def framed(*contents: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(one)) + one for one in contents)


def content(size_bytes: int) -> bytes:
    return bytes(number % 251 for number in range(size_bytes))


@pytest.mark.parametrize("piece_size_bytes", [1, 3, 1000, AHEAD_SIZE_BYTES, 1 << 20])
async def test_frames_of_all_sizes_in_pieces_of_all_sizes(pair: Pair, piece_size_bytes: int) -> None:
    sizes = [4, 5, 2000, 4] if piece_size_bytes < 1000 else [4, AHEAD_SIZE_BYTES - 4, AHEAD_SIZE_BYTES, MAX_BYTES, 7]
    sent = framed(*map(content, sizes))
    frames = FrameStream(pair.near, MAX_BYTES)

    async def send() -> None:
        for start in range(0, len(sent), piece_size_bytes):
            await pair.far.send_all(sent[start : start + piece_size_bytes])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        for size in sizes:
            frame = await frames.receive()
            assert isinstance(frame, bytearray)
            assert frame == content(size)


@pytest.mark.parametrize("size_bytes", [-1, 0, 3, MAX_BYTES + 1])
async def test_a_size_that_no_reply_has(pair: Pair, size_bytes: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.far.send_all, struct.pack(">i", size_bytes))
        with pytest.raises(DecodeError, match=str(size_bytes)):
            await FrameStream(pair.near, MAX_BYTES).receive()


@pytest.mark.parametrize("sent_bytes", [0, 2, 100, AHEAD_SIZE_BYTES + 100])
async def test_an_end_in_the_middle_of_a_frame(pair: Pair, sent_bytes: int) -> None:

    async def send() -> None:
        await pair.far.send_all(framed(content(MAX_BYTES))[:sent_bytes])
        await pair.far.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        with pytest.raises(ConnectionResetError):
            await FrameStream(pair.near, MAX_BYTES).receive()


async def test_requests_leave_as_frames_one_behind_the_other(pair: Pair) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(FrameStream(pair.near, MAX_BYTES).send, [b"first", b"second"])
        received = FrameStream(pair.far, MAX_BYTES)
        assert [await received.receive(), await received.receive()] == [b"first", b"second"]
