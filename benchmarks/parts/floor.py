"""The floor: the least possible cost of Produce requests in this interpreter, for comparison with the broker.

    python -m benchmarks.parts.floor PORT DIRECTORY async|sync|journal

One task waits for all sockets. Requests are decoded by hand and their CRC is checked. The requests of one turn are a
commit batch: one write for each partition and one send for each connection. The answer is sent, by mode:

    async    once the commit batch is written
    sync     once every file that was written to is synced, on a thread, while the next commit batches are written
    journal  once the commit batch is also written to a journal, as one write, and that is synced, on a thread,
             while the next one is collected; the files are not synced

It is no broker. It serves Produce 9 with one batch for one partition, up to 256 KiB, and trusts its clients: any other
request ends it. It knows no limits, deadlines, segments, indexes, producers or metrics, does not read its files, and
uses its journal again when it is full, even if the files do not have its content.
"""

from __future__ import annotations

import os
import queue
import select
import socket
import struct
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import trio
from crc32c import crc32c

MODES: Final = ("async", "sync", "journal")
PRODUCE: Final = 0
BUFFER_SIZE_BYTES: Final = 256 << 10
JOURNAL_SIZE_BYTES: Final = 64 << 20
PAGE_SIZE_BYTES: Final = 4096  # commit batches begin at pages: no write touches a page that is being synced
SWITCH_INTERVAL_S: Final = 0.0005  # the longest wait of the syncing thread for the interpreter
BATCH_CRC_FROM: Final = 21

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id
_BATCH: Final = struct.Struct(">qiiBIhiqqqhii")
_ANSWER: Final = struct.Struct(">ihqqq")  # partition, error, base offset, append time, log start
_ANSWER_END: Final = bytes.fromhex("01 00 00 00 00000000 00")  # no record errors, no message, tags, throttle, tags
_JOURNAL_HEAD: Final = struct.Struct(">IQI")  # CRC of the rest, sequence, entries
_JOURNAL_ENTRY: Final = struct.Struct(">iqqi")  # file, offset behind it, position, bytes


class Connection:
    """A socket and the received part of a frame."""

    __slots__ = ("buffer", "filled", "socket", "view")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.buffer = bytearray(BUFFER_SIZE_BYTES)
        self.view = memoryview(self.buffer)
        self.filled = 0

    def frames(self) -> Iterable[bytearray]:
        """The complete frames, each in a buffer of its own."""
        position = 0
        while self.filled - position >= 4:
            end = position + 4 + _INT32.unpack_from(self.buffer, position)[0]
            if end > self.filled:
                break
            yield bytearray(self.view[position + 4 : end])
            position = end
        self.buffer[: self.filled - position] = self.buffer[position : self.filled]
        self.filled -= position


class Partition:
    """A file to which batches are appended."""

    __slots__ = ("answer_begin", "end", "file", "index", "position")

    def __init__(self, directory: Path, topic: bytes, index: int) -> None:
        self.file = os.open(directory / f"{topic.decode()}-{index}", os.O_CREAT | os.O_RDWR)
        self.index = index
        self.end = 0
        self.position = 0
        self.answer_begin = b"\x00\x02" + bytes((len(topic) + 1,)) + topic + b"\x02"  # tags, one topic, one partition

    def stamp(self, batch: memoryview, count: int) -> int:
        """Give a batch the next offset."""
        base_offset = self.end
        _INT64.pack_into(batch, 0, base_offset)
        self.end += count
        return base_offset

    def answer(self, correlation_id: int, base_offset: int) -> bytes:
        row = _ANSWER.pack(self.index, 0, base_offset, -1, 0)
        body = b"".join((_INT32.pack(correlation_id), self.answer_begin, row, _ANSWER_END))
        return _INT32.pack(len(body)) + body


class Round:
    """A commit batch: the batches to write, the files that were written, and the answers to send afterwards."""

    __slots__ = ("answers", "batches", "files")

    def __init__(self) -> None:
        self.batches: dict[Partition, list[memoryview]] = {}
        self.files: set[int] = set()
        self.answers: dict[Connection, list[bytes]] = {}

    def write(self) -> None:
        for partition, batches in self.batches.items():
            partition.position += os.pwritev(partition.file, batches, partition.position)
            self.files.add(partition.file)
        self.batches.clear()

    def answer(self) -> None:
        for connection, answers in self.answers.items():
            data = b"".join(answers)
            sent = connection.socket.send(data)
            assert sent == len(data), "the client does not read its answers"


class Syncer:
    """Syncs files on a thread, those of one commit batch at a time; `descriptor` becomes readable when that is done."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0)
        self._under_way: Round | None = None
        self._jobs: queue.SimpleQueue[Iterable[int]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def is_idle(self) -> bool:
        return self._under_way is None

    def start(self, files: Iterable[int], waiting: Round) -> None:
        self._under_way = waiting
        self._jobs.put(files)

    def finish(self) -> Round:
        """Take the commit batch whose sync has ended."""
        os.eventfd_read(self.descriptor)
        done, self._under_way = self._under_way, None
        assert done is not None
        return done

    def _run(self) -> None:
        while True:
            for file in self._jobs.get():
                os.fdatasync(file)
            os.eventfd_write(self.descriptor, 1)


class Journal:
    """A file of zeros, or of earlier commit batches, which commit batches are written to one behind the other."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_RDWR)
        os.pwrite(self.file, bytes(JOURNAL_SIZE_BYTES), 0)
        os.fdatasync(self.file)
        self._position = 0
        self._sequence = 0

    def write(self, batches: dict[Partition, list[memoryview]]) -> None:
        """Write all batches at once, up to the end of a page."""
        head = bytearray(_JOURNAL_HEAD.size)
        buffers: list[bytes | bytearray | memoryview] = [head]
        size_bytes = _JOURNAL_HEAD.size + len(batches) * _JOURNAL_ENTRY.size
        for partition, each in batches.items():
            of_partition_bytes = sum(map(len, each))
            head += _JOURNAL_ENTRY.pack(partition.file, partition.end, partition.position, of_partition_bytes)
            buffers += each
            size_bytes += of_partition_bytes
        _JOURNAL_HEAD.pack_into(head, 0, 0, self._sequence, len(batches))
        head[:4] = crc32c(memoryview(head)[4:]).to_bytes(4, "big")
        self._put(buffers, size_bytes)

    def _put(self, buffers: list[bytes | bytearray | memoryview], size_bytes: int) -> None:
        filling = -size_bytes % PAGE_SIZE_BYTES
        if self._position + size_bytes + filling > JOURNAL_SIZE_BYTES:
            self._position = 0
        buffers.append(bytes(filling))
        self._position += os.pwritev(self.file, buffers, self._position)
        self._sequence += 1


class Floor:
    """The server: all sockets and partitions, and the commit batch that is being collected."""

    def __init__(self, port: int, directory: Path, mode: str) -> None:
        self._directory = directory
        self._partitions: dict[tuple[bytes, int], Partition] = {}
        self._connections: dict[int, Connection] = {}
        self._listening = socket.create_server(("127.0.0.1", port), backlog=500)
        self._listening.setblocking(False)
        self._poller = select.epoll()
        self._poller.register(self._listening, select.EPOLLIN)
        self._round = Round()
        self._settle = self._answer if mode == "async" else self._sync_files if mode == "sync" else self._sync_journal
        if mode != "async":
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._syncer = Syncer()
            self._poller.register(self._syncer.descriptor, select.EPOLLIN)
        if mode == "journal":
            self._journal = Journal(directory / "journal")

    async def run(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._poller.fileno())
            for descriptor, _ in self._poller.poll(0):
                connection = self._connections.get(descriptor)
                if connection is not None:
                    self._receive(connection)
                elif descriptor == self._listening.fileno():
                    self._accept()
                else:
                    self._syncer.finish().answer()
            if self._round.answers:
                self._round = self._settle(self._round)

    def _accept(self) -> None:
        connected, _ = self._listening.accept()
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[connected.fileno()] = Connection(connected)
        self._poller.register(connected, select.EPOLLIN)

    def _receive(self, connection: Connection) -> None:
        received = connection.socket.recv_into(connection.view[connection.filled :])
        if not received:
            del self._connections[connection.socket.fileno()]
            connection.socket.close()
            return
        connection.filled += received
        for frame in connection.frames():
            self._take(connection, frame)

    def _take(self, connection: Connection, frame: bytearray) -> None:
        """Add one request to the commit batch."""
        correlation_id, topic, index, batch, count = parse(frame)
        partition = self._partitions.get((topic, index))
        if partition is None:
            partition = self._partitions[topic, index] = Partition(self._directory, topic, index)
        answer = partition.answer(correlation_id, partition.stamp(batch, count))
        self._round.batches.setdefault(partition, []).append(batch)
        self._round.answers.setdefault(connection, []).append(answer)

    # The end of a commit batch that is not empty, by mode. Each returns the one that collects next.

    def _answer(self, collected: Round) -> Round:
        collected.write()
        collected.answer()
        return Round()

    def _sync_files(self, collected: Round) -> Round:
        collected.write()
        if not self._syncer.is_idle:
            return collected
        self._syncer.start(collected.files, collected)
        return Round()

    def _sync_journal(self, collected: Round) -> Round:
        if not self._syncer.is_idle:
            return collected
        self._journal.write(collected.batches)
        self._syncer.start((self._journal.file,), collected)
        collected.write()
        return Round()


def parse(frame: bytearray) -> tuple[int, bytes, int, memoryview, int]:
    """Correlation id, topic, partition, batch and number of its records, out of a Produce 9."""
    key, version, correlation_id, client_id_size = _HEADER.unpack_from(frame)
    assert (key, version) == (PRODUCE, 9), "only Produce 9 is served"
    size, at = unsigned_varint(frame, _HEADER.size + client_id_size + 1)  # header tags; transactional id
    at += max(0, size - 1) + 6  # acks, time-out
    _, at = unsigned_varint(frame, at)  # one topic
    size, at = unsigned_varint(frame, at)
    topic = bytes(frame[at : at + size - 1])
    _, at = unsigned_varint(frame, at + size - 1)  # one partition
    (index,) = _INT32.unpack_from(frame, at)
    size, at = unsigned_varint(frame, at + 4)
    batch = memoryview(frame)[at : at + size - 1]
    _, length, _, magic, crc, _, last, *_, count = _BATCH.unpack_from(batch)
    assert (magic, length, count) == (2, len(batch) - 12, last + 1), "a bad batch"
    assert crc32c(batch[BATCH_CRC_FROM:]) == crc, "a wrong CRC"
    return correlation_id, topic, index, batch, count


def unsigned_varint(data: bytearray, at: int) -> tuple[int, int]:
    """The value, and the position behind it."""
    value, shift = data[at] & 0x7F, 7
    while data[at] & 0x80:
        at += 1
        value |= (data[at] & 0x7F) << shift
        shift += 7
    return value, at + 1


def main() -> None:
    port, directory, mode = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    assert mode in MODES, mode
    directory.mkdir(parents=True, exist_ok=True)
    floor = Floor(port, directory, mode)
    print("ready", flush=True)
    trio.run(floor.run)


if __name__ == "__main__":
    main()
