"""Where things are in a Produce request of one batch for one partition, and in its reply, by version.

Everything up to the partition's index is the same from request to request of a client, but for the correlation id: it
is compared as a whole and never decoded. Behind the index come the batch and nothing of interest.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, Protocol

from kafkawire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kafkawire.requests.headers import response_header

API_KEY: Final = 0
CONSTANT_FROM: Final = 8  # behind key, version and correlation id

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_NO_TAGS: Final = b"\0\0\0"  # of the partition, the topic, the request
_NULL: Final = 255
_LONG_LENGTH: Final = 128  # a compact length from here on takes more than a byte
_TOPIC_ID_SIZE_BYTES: Final = 16


class Place(NamedTuple):
    """Of a batch in its frame; behind it is nothing that counts."""

    start: int
    end: int


class Shape(Protocol):
    """One kind of request. A frame that ends too early raises IndexError or struct.error."""

    def index_at(self, frame: bytearray) -> int:
        """Where the partition's index is, if this is such a request; else anything."""

    def place(self, frame: bytearray, index_at: int) -> Place | None:
        """Of the batch; None when it is not all that follows."""


class ClassicShape:
    """Versions 3 to 8: lengths of two and four bytes, no tagged fields."""

    def index_at(self, frame: bytearray) -> int:
        at = 10 + max(0, _INT16.unpack_from(frame, CONSTANT_FROM)[0])
        length: int = _INT16.unpack_from(frame, at + 12)[0]
        index_at: int = at + 14 + max(0, length) + 4
        return index_at

    def place(self, frame: bytearray, index_at: int) -> Place | None:
        start = index_at + 8
        end: int = start + _INT32.unpack_from(frame, index_at + 4)[0]
        return Place(start, end) if start < end == len(frame) else None


class FlexibleShape:
    """From version 9 on: compact lengths, tagged fields; from 13 on an id in place of the name."""

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id

    def index_at(self, frame: bytearray) -> int:
        at = 10 + max(0, _INT16.unpack_from(frame, CONSTANT_FROM)[0]) + 9
        index_at: int = at + (_TOPIC_ID_SIZE_BYTES if self._by_id else frame[at]) + 1
        return index_at

    def place(self, frame: bytearray, index_at: int) -> Place | None:
        at = index_at + 4
        length = shift = 0
        while True:
            byte = frame[at]
            at += 1
            length |= (byte & 127) << shift
            if byte < _LONG_LENGTH:
                break
            shift += 7
            if shift > 28:
                return None
        end = at + length - 1
        return Place(at, end) if at < end and frame[end:] == _NO_TAGS else None


CLASSIC: Final = ClassicShape()
BY_NAME: Final = FlexibleShape(by_id=False)
BY_ID: Final = FlexibleShape(by_id=True)
SHAPES: Final[tuple[Shape | None, ...]] = (*[None] * 3, *[CLASSIC] * 6, *[BY_NAME] * 4, BY_ID)

# A row of the reply that says success: index, no error, base offset, log append time and, from version 5 on, log start.
_ROW: Final = Struct(">ihqq")
_ROW_WITH_START: Final = Struct(">ihqqq")
_FIRST_VERSION_WITH_START: Final = 5
_SAMPLE: Final = (0x71727374, 0, 0x6162636465666768, 0x5152535455565758, 0x4142434445464748)


class ReplyShape:
    """What stands around the row in the reply to a request for one partition of a topic, as the encoder has it."""

    __slots__ = ("_head", "_row", "_tail", "_with_start")

    def __init__(self, version: int, topic: str, topic_id: bytes) -> None:
        self._with_start = version >= _FIRST_VERSION_WITH_START
        self._row = _ROW_WITH_START if self._with_start else _ROW
        index, _, base_offset, append_time_ms, log_start_offset = _SAMPLE
        row = PartitionProduceResponse(
            index=index, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=log_start_offset
        )
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[row])]
        )
        encoded = b"".join([response_header(API_KEY, version, 0), *response.encode(version)])
        sample = self._row.pack(*_SAMPLE[: 5 if self._with_start else 4])
        head, found, self._tail = encoded.partition(sample)
        assert found, "the row stands in the reply as it is packed"
        self._head = head[4:]  # behind the correlation id

    def reply(
        self,
        correlation_id: bytes | bytearray,
        index: int,
        base_offset: int,
        append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """That of a batch that was appended, without its size."""
        if self._with_start:
            row = _ROW_WITH_START.pack(index, 0, base_offset, append_time_ms, log_start_offset)
        else:
            row = _ROW.pack(index, 0, base_offset, append_time_ms)
        return b"".join((correlation_id, self._head, row, self._tail))
