"""The reply to a Fetch in which no partition has an error, packed at once, from version 11 on."""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkawire.messages.fetch import FetchResponse
from kafkawire.requests.errors import ErrorCode
from kafkawire.wire.primitives import uvarint

if TYPE_CHECKING:
    from engine.api import FileRange, ReadResult
    from kafkawire.fetching.sessions import FetchTarget
    from kafkawire.fetching.work import FetchResults
    from kafkawire.requests.started import Segment

    Row = tuple[FetchTarget, ReadResult]

# Size of records that are copied into the reply: a copy costs less than three more system calls.
COPIED_SIZE_MAX_BYTES: Final = 32 * 1024
COPIED_TOGETHER_MAX_BYTES: Final = 64 * 1024

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LEADER: Final = -1  # no other replica to read from

# Throttle time, error code, session id; from version 12 on after the header's tagged fields.
_HEAD_11: Final = Struct(">ihi")
_HEAD_12: Final = Struct(">xihi")

# Row of a partition: index, error code, high watermark, last stable offset, log start, aborted transactions (none, or
# null) and the replica to read from; in version 11 the size of the records.
_ROW_11: Final = Struct(">ihqqqiii")
_ROW_12: Final = Struct(">ihqqqBi")


def pack_reply(correlation_id: bytes, version: int, results: FetchResults) -> list[Segment] | None:
    """Segments of the reply, without its size; None if it needs more than records and positions of the log."""
    rows: list[Row] = []
    for target, result in results.outcomes:
        if isinstance(result, ErrorCode) or result.diverging is not None or result.aborted:
            return None
        rows.append((target, result))
    reply = _Reply(correlation_id)
    topics = [(name, list(of_topic)) for name, of_topic in groupby(rows, _topic_of)]
    pack = _pack_flexible if version >= FetchResponse.FLEXIBLE_FROM else _pack_classic
    pack(reply, results.session_id, topics)
    return reply.segments()


def _topic_of(row: Row) -> str | bytes:
    """Key of rows that share an entry: consecutive rows of one topic (FetchResponse.toMessage)."""
    return row[0].key[0]


def _pack_flexible(reply: _Reply, session_id: int, topics: list[tuple[str | bytes, list[Row]]]) -> None:
    parts = reply.parts
    parts += (_HEAD_12.pack(0, 0, session_id), uvarint(len(topics) + 1))
    for topic, rows in topics:
        if isinstance(topic, str):
            name = topic.encode()
            parts += (uvarint(len(name) + 1), name, uvarint(len(rows) + 1))
        else:
            parts += (topic, uvarint(len(rows) + 1))
        for target, result in rows:
            row = _ROW_12.pack(
                target.partition,
                0,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
                0 if result.aborted is None else 1,
                _LEADER,
            )
            parts += (row, uvarint(result.size_bytes + 1))
            reply.add_records(result)
            parts.append(b"\0")
        parts.append(b"\0")
    parts.append(b"\0")


def _pack_classic(reply: _Reply, session_id: int, topics: list[tuple[str | bytes, list[Row]]]) -> None:
    parts = reply.parts
    parts += (_HEAD_11.pack(0, 0, session_id), _INT32.pack(len(topics)))
    for topic, rows in topics:
        name = topic.encode() if isinstance(topic, str) else topic
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(rows)))
        for target, result in rows:
            row = _ROW_11.pack(
                target.partition,
                0,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
                -1 if result.aborted is None else 0,
                _LEADER,
                result.size_bytes,
            )
            parts.append(row)
            reply.add_records(result)


class _Reply:
    """Parts of a reply: bytes, and ranges of files between them."""

    __slots__ = ("_copied_size_bytes", "_segments", "parts")

    def __init__(self, correlation_id: bytes) -> None:
        self.parts = [correlation_id]
        self._segments: list[Segment] = []
        self._copied_size_bytes = 0

    def add_records(self, result: ReadResult) -> None:
        """Add records of a partition.

        Few are read into memory: the engine has just read them, so they are in the page cache.
        """
        for found in result.records:
            copied_size_bytes = self._copied_size_bytes + found.size_bytes
            is_small = found.size_bytes <= COPIED_SIZE_MAX_BYTES and copied_size_bytes <= COPIED_TOGETHER_MAX_BYTES
            data = _read(found) if is_small else None
            if data is None:
                self._segments += (b"".join(self.parts), found)
                self.parts.clear()
            else:
                self.parts.append(data)
                self._copied_size_bytes = copied_size_bytes

    def segments(self) -> list[Segment]:
        self._segments.append(b"".join(self.parts))
        return self._segments


def _read(records: FileRange) -> bytes | None:
    """Records of the range; None if the read fails: the transport then reports the reason."""
    try:
        data = records.file.read_at(records.position, records.size_bytes)
    except OSError:
        return None
    return data if len(data) == records.size_bytes else None
