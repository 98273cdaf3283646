"""The socket transport on a socket pair, with real files for sendfile."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server import transport as transport_module
from kafkawire.server.memory_transport import MemoryListener
from kafkawire.server.transport import FileTooShortError, SocketTransport, first_choice
from kafkawire.tests.turns import OtherTask


class OpenFile:
    """A real file, read through its descriptor or, as in the twin filesystem, without one."""

    def __init__(self, path: Path, *, with_descriptor: bool = True) -> None:
        self._file = path.open("rb")
        self._with_descriptor = with_descriptor

    def fileno(self) -> int | None:
        return self._file.fileno() if self._with_descriptor else None

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size_bytes)

    def close(self) -> None:
        self._file.close()


CONTENT = bytes(number % 251 for number in range(1_000_000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "segment.log"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(params=[True, False], ids=["sendfile", "read"])
def file(path: Path, request: pytest.FixtureRequest) -> Iterator[OpenFile]:
    file = OpenFile(path, with_descriptor=request.param)
    yield file
    file.close()


@pytest.fixture
def pair() -> Iterator[tuple[SocketTransport, SocketTransport]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield SocketTransport(ours), SocketTransport(theirs)


async def received(transport: SocketTransport, size_bytes: int) -> bytes:
    buffer = bytearray(size_bytes)
    filled = 0
    while filled < size_bytes:
        count = await transport.receive_into(memoryview(buffer)[filled:])
        assert count > 0
        filled += count
    return bytes(buffer)


Pair = tuple[SocketTransport, SocketTransport]


async def test_segments_of_memory_and_of_files_arrive_in_order(pair: Pair, file: OpenFile) -> None:
    segments: list[Segment] = [
        b"head",
        FileRange(file, 1000, 700_000),
        bytearray(b"between"),
        FileRange(file, 3, 1),
        memoryview(b"tail"),
    ]
    expected = b"head" + CONTENT[1000:701_000] + b"between" + CONTENT[3:4] + b"tail"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair[0].send_segments, segments)
        assert await received(pair[1], len(expected)) == expected
    assert pair[0].sent_size_bytes == len(expected)


@pytest.mark.parametrize("sizes", [[0, 1, 0, 2], [300_000, 5, 300_000], [100] * 3000, [17] * 2])
async def test_memory_arrives_whole_whatever_its_pieces(pair: Pair, sizes: list[int]) -> None:
    segments = [struct.pack(">H", number) * size for number, size in enumerate(sizes)]
    expected = b"".join(segments)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair[0].send_segments, segments)
        assert await received(pair[1], len(expected)) == expected


@pytest.mark.parametrize("ranges", [[20_000], [500] * 40, [700] * 28 + [400]], ids=["long", "short", "uneven"])
async def test_other_tasks_get_their_turn_while_files_are_sent(
    pair: Pair, file: OpenFile, monkeypatch: pytest.MonkeyPatch, ranges: list[int]
) -> None:
    monkeypatch.setattr(transport_module, "SLICE_SIZE_BYTES", 1000)
    monkeypatch.setattr(transport_module, "TURN_SIZE_BYTES", 1000)
    other = OtherTask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.run)
        for size_bytes in ranges:  # each its own reply
            await pair[0].send_segments([b"head", FileRange(file, 0, size_bytes)])
        assert other.turns >= 15
        nursery.cancel_scope.cancel()


async def test_a_range_within_a_turn_is_sent_at_once(pair: Pair, path: Path) -> None:
    file = OpenFile(path)
    sending = pair[0].send_segments([b"head", FileRange(file, 0, 100_000), b"tail"])
    with pytest.raises(StopIteration):
        sending.send(None)
    assert pair[0].sent_size_bytes == 100_008
    file.close()


async def test_a_file_truncated_under_the_reply_is_an_error_not_padding(pair: Pair, file: OpenFile, path: Path) -> None:
    with path.open("r+b") as writable:
        writable.truncate(500)
    with pytest.raises(FileTooShortError, match="ends at 500"):
        await pair[0].send_segments([FileRange(file, 0, 600)])
    assert await received(pair[1], 500) == CONTENT[:500]


async def test_a_peer_that_left_is_the_end_of_the_stream_or_an_os_error(pair: Pair) -> None:
    pair[1].close()
    assert await pair[0].receive_into(memoryview(bytearray(10))) == 0
    with pytest.raises(OSError, match="Broken pipe"):
        await pair[0].send_segments([b"too late"])


async def test_a_blocked_send_waits_without_losing_its_place(pair: Pair) -> None:
    data = bytes(range(256)) * 8192
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair[0].send_segments, [b"size", data, b"end"])
        await trio.testing.wait_all_tasks_blocked()
        assert 0 < pair[0].sent_size_bytes < len(data)
        assert await received(pair[1], len(data) + 7) == b"size" + data + b"end"


async def test_memory_connections_send_ranges_of_files_and_break_like_sockets(file: OpenFile) -> None:
    listener = MemoryListener()
    peer = listener.connect("10.0.0.1")
    accepted = await listener.accept()
    assert (accepted.peer_host, accepted.local_address) == ("10.0.0.1", "memory")
    await accepted.transport.send_segments([b"head", FileRange(file, 10, 300_000)])
    assert accepted.transport.sent_size_bytes == 300_004
    assert await peer.receive_some() == b"head" + CONTENT[10:300_010]
    await peer.aclose()
    with pytest.raises(BrokenPipeError):
        await accepted.transport.send_segments([b"too late"])
    accepted.transport.close()
    with pytest.raises(ConnectionResetError):
        await accepted.transport.receive_into(memoryview(bytearray(10)))
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        listener.connect()


def test_a_name_with_addresses_of_both_kinds_is_bound_to_that_of_ipv4() -> None:
    six, four = (socket.AF_INET6, ("::1", 9092, 0, 0)), (socket.AF_INET, ("127.0.0.1", 9092))
    assert first_choice([six, four]) == four
    assert first_choice([six]) == six
