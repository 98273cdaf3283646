"""A Kafka connection with nothing above the frame: it sends the bytes of the test as they are."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from compat_tests.harness.broker import Broker

TIMEOUT_S = 15.0
FETCH = 1
MAX_BYTES = 50_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ATTRIBUTES_POSITION = 21  # in a record batch of magic 2, big-endian int16


class WireConnection:
    """A blocking socket that sends and receives frames."""

    def __init__(self, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        """The descriptor of the socket, to wait for several connections."""
        return self._socket.fileno()

    def send_frame(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def send_bytes(self, data: bytes) -> None:
        """Bytes as they are, without a size in front."""
        self._socket.sendall(data)

    def receive_frame(self) -> bytes | None:
        """The next frame without its size; None when the broker closed the connection instead."""
        size = self._receive_exactly(4)
        if size is None:
            return None
        return self._receive_exactly(int.from_bytes(size, "big"))

    def _receive_exactly(self, size_bytes: int) -> bytes | None:
        received = bytearray()
        while len(received) < size_bytes:
            try:
                piece = self._socket.recv(size_bytes - len(received))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        return bytes(received)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def request_frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """A frame with a request header of the non-flexible kind (version 1)."""
    return struct.pack(">hhih6s", api_key, version, correlation_id, 6, b"compat") + body


def fetch_frame(topic: str, offset: int, max_wait_ms: int, partition: int = 0, correlation_id: int = 1) -> bytes:
    """A Fetch that waits for a byte."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, MAX_BYTES, 0)
    body += struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, partition, offset, MAX_BYTES)
    return request_frame(FETCH, 4, body, correlation_id)


def stored_records(broker: Broker, topic: str) -> bytes:
    """The batches of partition 0 from offset 0 on, as the broker sends them: still compressed."""
    with WireConnection(broker.leader_of(topic).port) as connection:
        connection.send_frame(fetch_frame(topic, 0, max_wait_ms=1000))
        return fetched_records(connection.receive_frame(), topic)


def fetched_records(reply: bytes | None, topic: str) -> bytes:
    """The records of an answer to `fetch_frame`."""
    assert reply is not None, "the broker closed the connection"
    position = 4 + 4 + 4 + 2 + len(topic.encode()) + 4  # correlation id, throttle, one topic, one partition
    _, error, _, _, aborted_count, records_size = struct.unpack_from(">ihqqii", reply, position)
    assert error == 0
    assert aborted_count in (-1, 0)
    return reply[len(reply) - records_size :]


def codec_of(records: bytes) -> str:
    """The codec of the first batch."""
    (attributes,) = struct.unpack_from(">h", records, ATTRIBUTES_POSITION)
    return CODECS[attributes & 0b111]
