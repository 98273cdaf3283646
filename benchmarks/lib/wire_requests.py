"""Encodes the requests of the wire load: Produce 9 and Fetch 12, the last versions that name topics.

Later versions carry topic ids, which differ between two brokers; with names both get the same bytes. ListOffsets 9 is
as Java's consumer sends it. Encoded by hand, so that the measurement does not depend on the measured code.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from compat_tests.harness.batches import Batch, Record
from compat_tests.harness.wire import WireConnection, request_frame
from kafkawire.client.load import LoadFailed, Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS = 0, 1, 2, 19
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 9, 12, 9
RECORD_SIZE_BYTES = 1024
RECORD_OVERHEAD_BYTES = 12
CLIENT_ID = b"wire-load"
LATEST, EARLIEST = -1, -2


def batch_of(request_size_bytes: int, record_size_bytes: int = RECORD_SIZE_BYTES) -> bytes:
    """An uncompressed batch of records, 1 KiB each unless told, as many as make the size asked for."""
    count = max(1, request_size_bytes // record_size_bytes)
    value = bytes(range(256)) * (record_size_bytes // 256 + 1)
    record = Record(value=value[: max(1, record_size_bytes - RECORD_OVERHEAD_BYTES)], key=None)
    return Batch(records=(record,) * count).encode()


def produce_requests(topic: str, partitions: Sequence[int], batch: bytes, count: int, acks: int = -1) -> Requests:
    """The batch to each of the partitions in turn."""
    name = _compact(topic.encode())
    head = b"\x00" + struct.pack(">hi", acks, 30_000) + b"\x02" + name + b"\x02"  # no transactional id
    records = _unsigned_varint(len(batch) + 1) + batch + b"\x00\x00\x00"
    frames = [
        _frame(PRODUCE, PRODUCE_VERSION, head + struct.pack(">i", partition) + records) for partition in partitions
    ]
    # correlation id, header tags, one topic, one partition, its index
    return Requests(frames, count, checker(4 + 1 + 1 + len(name) + 1 + 4))


def fetch_requests(
    topic: str, offsets: Sequence[int], count: int, max_size_bytes: int, isolation_level: int = 0
) -> Requests:
    """Fetches of partition 0 from each of the offsets in turn, outside a session."""
    name = _compact(topic.encode())
    body = struct.pack(">iiiibii", -1, 1_000, 1, 2 * max_size_bytes, isolation_level, 0, -1)
    body += b"\x02" + name + b"\x02" + struct.pack(">ii", 0, -1)  # partition, current leader epoch
    offset_in_body = len(body)
    body += struct.pack(">qiqi", 0, -1, -1, max_size_bytes) + b"\x00\x00"
    body += b"\x01\x01\x00"  # no forgotten topics, no rack, no tags
    frame = _frame(FETCH, FETCH_VERSION, body)
    offset_position = len(frame) - len(body) + offset_in_body
    # correlation id, header tags, throttle, error, session, one topic, one partition, its index
    check = checker(4 + 1 + 4 + 2 + 4 + 1 + len(name) + 1 + 4)
    return Requests([frame], count, check, offset_position, offsets)


def end_requests(topic: str, count: int) -> Requests:
    """Lookups of the start and the end of partition 0, in turn, by a reader that seeks to both."""
    name = _compact(topic.encode())
    head = struct.pack(">ib", -1, 0) + b"\x02" + name + b"\x02" + struct.pack(">ii", 0, 0)  # partition, leader epoch
    frames = [
        _frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, head + struct.pack(">q", end) + b"\x00\x00\x00")
        for end in (EARLIEST, LATEST)
    ]
    # correlation id, header tags, throttle, one topic, one partition, its index
    return Requests(frames, count, checker(4 + 1 + 4 + 1 + len(name) + 1 + 4))


def list_offsets_frame(topic: str, partitions: Sequence[int], timestamp_ms: int) -> bytes:
    """ListOffsets 1: the first offset at or after a time, or the end for LATEST."""
    name = topic.encode()
    body = struct.pack(f">iih{len(name)}si", -1, 1, len(name), name, len(partitions))
    body += b"".join(struct.pack(">iq", partition, timestamp_ms) for partition in partitions)
    return request_frame(LIST_OFFSETS, 1, body)


def create_topic_frame(topic: str) -> bytes:
    """CreateTopics 4 of one partition."""
    name = topic.encode()
    body = struct.pack(f">ih{len(name)}sihiiib", 1, len(name), name, 1, 1, 0, 0, 30_000, 0)
    return request_frame(CREATE_TOPICS, 4, body)


def list_latest(port: int, topic: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """Error code and offset behind the last record of each partition."""
    with WireConnection(port) as connection:
        connection.send_frame(list_offsets_frame(topic, partitions, LATEST))
        reply = connection.receive_frame()
    return listed_offsets(reply, partitions)


def listed_offsets(reply: bytes | None, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """Error code and offset of each partition, out of an answer to ListOffsets 1."""
    if reply is None:
        raise LoadFailed("the broker closed the connection at ListOffsets")
    answers = struct.iter_unpack(">ihqq", reply[len(reply) - 22 * len(partitions) :])
    found = {index: (error, offset) for index, error, _, offset in answers}
    return [found[partition] for partition in partitions]


def end_offsets(port: int, topic: str, partitions: Sequence[int]) -> list[int]:
    answers = list_latest(port, topic, partitions)
    errors = {error for error, _ in answers if error}
    if errors:
        raise LoadFailed(f"ListOffsets answered with errors {errors}")
    return [offset for _, offset in answers]


def sized(frame: bytes) -> bytearray:
    """The frame as `Requests` takes it, with its size in front."""
    return bytearray(struct.pack(">i", len(frame)) + frame)


def checker(error_position: int) -> Callable[[bytes], None]:
    """A function that raises LoadFailed for a reply with an error code at that position."""

    def check(head: bytes) -> None:
        if head[error_position : error_position + 2] != b"\x00\x00":
            raise LoadFailed(f"the broker answered with an error: {head.hex()}")

    return check


def _frame(api_key: int, version: int, body: bytes) -> bytearray:
    header = struct.pack(f">hhih{len(CLIENT_ID)}sb", api_key, version, 0, len(CLIENT_ID), CLIENT_ID, 0)
    return sized(header + body)


def _compact(data: bytes) -> bytes:
    return _unsigned_varint(len(data) + 1) + data


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
