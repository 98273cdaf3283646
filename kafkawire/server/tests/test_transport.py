"""The socket transport on a socket pair, with real files for sendfile."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from engine.api import FileRange
from kafkawire.requests.started import Segment
from kafkawire.server import transport as transport_module
from kafkawire.server.memory_transport import MemoryListener
from kafkawire.server.transport import FileTooShortError, SocketTransport, first_choice


class OpenFile:
    """A real file, read through its descriptor or, as on the simulated disk, without one."""

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
def pair() -> Iterator[tuple[SocketTransport, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(0)
    with ours, theirs:
        yield SocketTransport(ours), theirs


Pair = tuple[SocketTransport, socket.socket]


def carried(pair: Pair, segments: Sequence[Segment]) -> bytes:
    """Send as far as there is room, and receive, until all bytes have arrived."""
    arrived = b""
    while segments:
        segments = pair[0].send(segments)
        with suppress(BlockingIOError):
            while piece := pair[1].recv(1 << 20):
                arrived += piece
    return arrived


def test_segments_of_memory_and_of_files_arrive_in_order(pair: Pair, file: OpenFile) -> None:
    segments: list[Segment] = [
        b"head",
        FileRange(file, 1000, 700_000),
        FileRange(file, 5, 0),
        bytearray(b"between"),
        b"",
        FileRange(file, 3, 1),
        memoryview(b"tail"),
    ]
    expected = b"head" + CONTENT[1000:701_000] + b"between" + CONTENT[3:4] + b"tail"
    assert carried(pair, segments) == expected
    assert pair[0].sent_size_bytes == len(expected)


@pytest.mark.parametrize("sizes", [[0, 1, 0, 2], [300_000, 5, 300_000], [100] * 3000, [17] * 2])
@pytest.mark.parametrize("with_file", [False, True])
def test_memory_segments_of_any_sizes_arrive_complete(
    pair: Pair, file: OpenFile, sizes: list[int], *, with_file: bool
) -> None:
    segments: list[Segment] = [struct.pack(">H", number) * size for number, size in enumerate(sizes)]
    expected = b"".join(cast("list[bytes]", segments))
    if with_file:
        segments.append(FileRange(file, 0, 7))
        expected += CONTENT[:7]
    assert carried(pair, segments) == expected


def test_so_much_of_files_is_sent_in_one_turn(pair: Pair, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "TURN_SIZE_BYTES", 1000)
    file = OpenFile(path)
    rest = pair[0].send([b"head", FileRange(file, 0, 2500), b"tail"])
    assert pair[0].sent_size_bytes == 1004 - 4
    assert carried(pair, rest)[-4:] == b"tail"
    file.close()


def test_a_file_truncated_under_the_reply_is_an_error_not_padding(pair: Pair, file: OpenFile, path: Path) -> None:
    with path.open("r+b") as writable:
        writable.truncate(500)
    with pytest.raises(FileTooShortError, match="ends at 500"):
        carried(pair, [FileRange(file, 0, 600)])


def test_a_peer_that_left_is_the_end_of_the_stream_or_an_os_error(pair: Pair) -> None:
    buffer = memoryview(bytearray(10))
    assert pair[0].receive(buffer) is None
    pair[1].close()
    assert pair[0].receive(buffer) == 0
    with pytest.raises(OSError, match="Broken pipe"):
        pair[0].send([b"too late"])


def test_unsent_bytes_are_returned_when_the_peer_has_no_room(pair: Pair) -> None:
    data = bytes(range(256)) * 8192
    rest = pair[0].send([b"size", data, b"end"])
    assert rest
    assert sum(map(len, rest)) == len(data) + 7 - pair[0].sent_size_bytes
    assert pair[0].send(rest)  # still no room


def test_a_finished_transport_ends_the_stream_and_goes_on_receiving(pair: Pair) -> None:
    pair[0].send([b"last"])
    pair[0].finish()
    assert pair[1].recv(100) == b"last"
    assert pair[1].recv(100) == b""
    pair[1].send(b"more")
    assert pair[0].receive(memoryview(bytearray(10))) == 4


async def test_memory_connections_send_ranges_of_files_and_break_like_sockets(file: OpenFile) -> None:
    listener = MemoryListener()
    peer = listener.connect("10.0.0.1")
    accepted = await listener.accept()
    assert (accepted.peer_host, accepted.local_address) == ("10.0.0.1", "memory")
    peer.room_bytes = 300_000
    rest = accepted.transport.send([b"head", FileRange(file, 10, 300_000)])
    assert [len(one) for one in rest] == [4]
    peer.room_bytes = 4
    assert not accepted.transport.send(rest)
    assert accepted.transport.sent_size_bytes == 300_004
    assert await peer.receive_some() == b"head" + CONTENT[10:300_010]
    await peer.aclose()
    with pytest.raises(BrokenPipeError):
        accepted.transport.send([b"too late"])
    assert accepted.transport.receive(memoryview(bytearray(10))) == 0
    accepted.transport.close()
    with pytest.raises(ConnectionResetError):
        accepted.transport.receive(memoryview(bytearray(10)))
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        listener.connect()


def test_a_name_with_addresses_of_both_kinds_is_bound_to_that_of_ipv4() -> None:
    six, four = (socket.AF_INET6, ("::1", 9092, 0, 0)), (socket.AF_INET, ("127.0.0.1", 9092))
    assert first_choice([six, four]) == four
    assert first_choice([six]) == six
