"""Positions in a Produce request and in its reply, by version.

Up to its topics, all requests of a client are equal except for the correlation id. For one batch of one partition they
are equal up to the partition's index. Such prefixes are compared as a whole and never decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from kafkawire.messages.produce import API_KEY, PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkawire.requests.headers import CLIENT_ID_AT, response_header
from kafkawire.wire.primitives import LONG_LENGTH, UUID_SIZE_BYTES, ZERO_UUID, uvarint

BATCH_SIZE_MIN_BYTES: Final = 61  # of the header alone; smaller batches are refused elsewhere
ROWS_MAX: Final = 256  # partitions of a request

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_NO_TAGS: Final = b"\0\0\0"  # for the partition, the topic and the request


# Positions: the index of the only partition; its batch's begin and end; the end that leaves no bytes behind the batch.
Single = tuple[int, int, int, int]
NOWHERE: Final = -1


class NotThisShape(Exception):
    """A request of a shape that is not handled here."""


class Row(NamedTuple):
    """Partition of a request, and the position of its batch."""

    partition: int
    start: int
    end: int


class TopicRows(NamedTuple):
    """Topic of a request. `named` are its bytes with the length; `name` is without it, or is the topic id."""

    named: bytes
    name: bytes
    rows: Sequence[Row]


class ClassicShape:
    """Versions 3 to 8: lengths of two and four bytes, no tagged fields."""

    def topics_at(self, frame: bytearray) -> int:
        """Position of the number of topics.

        For all methods: a frame that is too short raises IndexError or struct.error. A frame of another shape gives any
        position, or raises NotThisShape.
        """
        at = 10 + max(0, _INT16.unpack_from(frame, CLIENT_ID_AT)[0])
        return int(at + 8)

    def single(self, frame: bytearray) -> Single:
        """Positions of the batch, if the request is for one partition."""
        at = 10 + max(0, _INT16.unpack_from(frame, CLIENT_ID_AT)[0])
        index_at: int = at + 18 + max(0, _INT16.unpack_from(frame, at + 12)[0])
        start = index_at + 8
        return index_at, start, start + _INT32.unpack_from(frame, index_at + 4)[0], len(frame)

    def topics(self, frame: bytearray, at: int) -> list[TopicRows]:
        """All topics of the request, from `topics_at` on."""
        found: list[TopicRows] = []
        count: int = _INT32.unpack_from(frame, at)[0]
        at, rows_left = at + 4, ROWS_MAX
        for _ in range(_bounded(count, rows_left)):
            name_at = at
            at += 2 + _at_least_0(_INT16.unpack_from(frame, at)[0])
            named, rows = bytes(frame[name_at:at]), []
            count = _INT32.unpack_from(frame, at)[0]
            at += 4
            for _ in range(_bounded(count, rows_left)):
                index, size_bytes = _INT32.unpack_from(frame, at)[0], _INT32.unpack_from(frame, at + 4)[0]
                rows.append(Row(index, at + 8, at + 8 + size_bytes))
                at += 8 + _batch_size(size_bytes)
            rows_left -= count
            found.append(TopicRows(named, named[2:], rows))
        if at != len(frame):
            raise NotThisShape
        return found


class FlexibleShape:
    """Versions from 9 on: compact lengths, tagged fields; from 13 on an id in place of the name."""

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id

    def topics_at(self, frame: bytearray) -> int:
        """See `ClassicShape`."""
        return int(10 + max(0, _INT16.unpack_from(frame, CLIENT_ID_AT)[0]) + 8)

    def single(self, frame: bytearray) -> Single:
        """See `ClassicShape`."""
        at = 19 + max(0, _INT16.unpack_from(frame, CLIENT_ID_AT)[0])
        index_at = at + (UUID_SIZE_BYTES if self._by_id else frame[at]) + 1
        length, start = _compact(frame, index_at + 4)
        end = len(frame) - 3
        return index_at, start, start + length, end if frame[end:] == _NO_TAGS else NOWHERE

    def topics(self, frame: bytearray, at: int) -> list[TopicRows]:
        """See `ClassicShape`."""
        found: list[TopicRows] = []
        count, at = _compact(frame, at)
        rows_left = ROWS_MAX
        for _ in range(_bounded(count, rows_left)):
            named_at = name_at = at
            length = UUID_SIZE_BYTES
            if not self._by_id:
                length, name_at = _compact(frame, at)
            at = name_at + _at_least_0(length)
            rows: list[Row] = []
            named, name = bytes(frame[named_at:at]), bytes(frame[name_at:at])
            count, at = _compact(frame, at)
            for _ in range(_bounded(count, rows_left)):
                index = _INT32.unpack_from(frame, at)[0]
                length, start = _compact(frame, at + 4)
                at = start + _batch_size(length)
                rows.append(Row(index, start, at))
                at = _without_tags(frame, at)
            rows_left -= count
            at = _without_tags(frame, at)
            found.append(TopicRows(named, name, rows))
        if _without_tags(frame, at) != len(frame):
            raise NotThisShape
        return found


Shape = ClassicShape | FlexibleShape

CLASSIC: Final = ClassicShape()
BY_NAME: Final = FlexibleShape(by_id=False)
BY_ID: Final = FlexibleShape(by_id=True)
SHAPES: Final[tuple[Shape | None, ...]] = (*[None] * 3, *[CLASSIC] * 6, *[BY_NAME] * 4, BY_ID)


def _compact(frame: bytearray, at: int) -> tuple[int, int]:
    """A compact length or count, -1 for null, and the position behind it."""
    byte = frame[at]
    at += 1
    if byte < LONG_LENGTH:
        return byte - 1, at
    length, shift = byte & 127, 7
    while True:
        byte = frame[at]
        at += 1
        length |= (byte & 127) << shift
        if byte < LONG_LENGTH:
            return length - 1, at
        shift += 7
        if shift > 28:
            raise NotThisShape


def _bounded(count: int, rows_left: int) -> int:
    """The count, if it is at least 1 and at most `rows_left`. Raises NotThisShape."""
    if not 0 < count <= rows_left:
        raise NotThisShape
    return count


def _at_least_0(length: int) -> int:
    if length < 0:
        raise NotThisShape
    return length


def _batch_size(size_bytes: int) -> int:
    if size_bytes < BATCH_SIZE_MIN_BYTES:
        raise NotThisShape
    return size_bytes


def _without_tags(frame: bytearray, at: int) -> int:
    if frame[at]:
        raise NotThisShape
    return at + 1


# Row of the reply for a success: index, no error, base offset, log append time and, from version 5 on, log start.
_ROW: Final = Struct(">ihqq")
_ROW_WITH_START: Final = Struct(">ihqqq")
_FIRST_VERSION_WITH_START: Final = 5
_SAMPLE: Final = (0x71727374, 0, 0x6162636465666768, 0x5152535455565758, 0x4142434445464748)


class ReplyRow(NamedTuple):
    """Reply row of an appended batch."""

    partition: int
    base_offset: int
    append_time_ms: int
    log_start_offset: int


class RowShape:
    """Encoded form of a reply row in a version, and the bytes around rows, taken from the encoder."""

    __slots__ = ("_is_flexible", "_row", "_with_start", "after_row", "after_topic", "after_topics")

    def __init__(self, version: int) -> None:
        self._with_start = version >= _FIRST_VERSION_WITH_START
        self._row = _ROW_WITH_START if self._with_start else _ROW
        self._is_flexible = version >= ProduceResponse.FLEXIBLE_FROM
        sample = self._row.pack(*_SAMPLE[: 5 if self._with_start else 4])
        _, self.after_row, rest = _encode_sample(version, 2).split(sample)
        end = rest[len(self.after_row) :]
        self.after_topic = b"\0" if self._is_flexible else b""
        self.after_topics = end[len(self.after_topic) :]

    def row(self, index: int, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
        """A row, without the bytes behind it."""
        if self._with_start:
            return _ROW_WITH_START.pack(index, 0, base_offset, append_time_ms, log_start_offset)
        return _ROW.pack(index, 0, base_offset, append_time_ms)

    def count(self, number: int) -> bytes:
        """Number of topics or rows."""
        if not self._is_flexible:
            return _INT32.pack(number)
        return uvarint(number + 1)

    def reply(self, correlation_id: bytes | bytearray, topics: Sequence[tuple[bytes, Sequence[ReplyRow]]]) -> bytes:
        """The reply to a request whose batches are all appended, without its size.

        Topics are named as in the request.
        """
        parts = [correlation_id, b"\0" if self._is_flexible else b"", self.count(len(topics))]
        for name, rows in topics:
            parts += (name, self.count(len(rows)))
            for row in rows:
                parts += (self.row(*row), self.after_row)
            parts.append(self.after_topic)
        parts.append(self.after_topics)
        return b"".join(parts)


class ReplyShape:
    """Bytes around the row in the reply to a request for one partition, taken from the encoder."""

    __slots__ = ("_head", "_row", "_tail")

    def __init__(self, version: int, topic: str, topic_id: bytes) -> None:
        shape = ROWS[version]
        self._row = shape.row
        encoded = _encode_sample(version, 1, topic, topic_id)
        sample = shape.row(_SAMPLE[0], *_SAMPLE[2:])
        head, found, self._tail = encoded.partition(sample)
        assert found, "the row stands in the reply as it is packed"
        self._head = head[4:]  # after the correlation id

    def reply(
        self,
        correlation_id: bytes | bytearray,
        index: int,
        base_offset: int,
        append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """The reply for an appended batch, without its size."""
        row = self._row(index, base_offset, append_time_ms, log_start_offset)
        return b"".join((correlation_id, self._head, row, self._tail))


def _encode_sample(version: int, count: int, topic: str = "", topic_id: bytes = ZERO_UUID) -> bytes:
    """A reply with that number of sample rows for one topic."""
    index, _, base_offset, append_time_ms, log_start_offset = _SAMPLE
    row = PartitionProduceResponse(
        index=index, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=log_start_offset
    )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[row] * count)]
    )
    return b"".join([response_header(API_KEY, version, 0), *response.encode(version)])


ROWS: Final = [RowShape(max(version, 3)) for version in range(len(SHAPES))]
