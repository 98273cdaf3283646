"""The topics and partitions of an OffsetCommit, by version, and the reply that all of it was committed.

The reply is the request from its topics on; error code 0 replaces offset, epoch and metadata of each partition. All
partitions of a topic must have the same metadata: mostly it is empty, and clients that set it, for example to a member
id, set it for all.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from coordinator.groups.api import NO_EPOCH, OffsetToCommit
from kafkawire.handlers.offset_commit import FIRST_VERSION_WITH_IDS
from kafkawire.messages.offset_commit import API_KEY, OffsetCommitRequest, OffsetCommitResponse
from kafkawire.requests.dispatch import INLINE_ELEMENTS_MAX
from kafkawire.requests.headers import response_header
from kafkawire.wire.primitives import LONG_LENGTH, UUID_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.api import ClusterImage, TopicInfo

    # The topics, their offsets, and the reply (without correlation id) if all of them are committed.
    DecodedCommit = tuple[list[TopicInfo], list[OffsetToCommit], bytes]

FIRST_VERSION_WITH_EPOCH: Final = 6

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class OtherShape(Exception):
    """A request that is left to the general path."""


class CommitShape:
    """Shape of one version: lengths of two and four bytes up to version 7, compact ones and tagged fields from 8 on."""

    def __init__(self, version: int) -> None:
        self._is_flexible = version >= OffsetCommitRequest.FLEXIBLE_FROM
        self._has_epochs = version >= FIRST_VERSION_WITH_EPOCH
        self._has_ids = version >= FIRST_VERSION_WITH_IDS
        self._reply_row = Struct(">ihx" if self._is_flexible else ">ih").pack  # x: no tagged fields
        empty = b"".join([response_header(API_KEY, version, 0), *OffsetCommitResponse().encode(version)])
        self._reply_head = empty[4 : -2 if self._is_flexible else -4]  # up to the count of topics

    def read(self, frame: bytearray, at: int, image: ClusterImage) -> DecodedCommit:
        """The requested topics and offsets from there to the end of the request; all topics are known.

        Raises OtherShape, IndexError, struct.error, UnicodeDecodeError.
        """
        topics: list[TopicInfo] = []
        offsets: list[OffsetToCommit] = []
        reply: list[bytes | bytearray] = [self._reply_head]
        copied = at  # the request is copied into the reply up to there
        topic_count, at = self._count(frame, at)
        for _ in range(topic_count):
            topic, at = self._topic(frame, at, image)
            count, at = self._count(frame, at)
            if len(offsets) + count > INLINE_ELEMENTS_MAX:
                raise OtherShape
            reply.append(frame[copied:at])
            copied = self._rows(frame, at, count, topic, offsets, reply)
            topics.append(topic)
            at = self._end(frame, copied)
        end = self._end(frame, at)
        if end != len(frame):
            raise OtherShape
        reply.append(frame[copied:end])
        return topics, offsets, b"".join(reply)

    def _rows(
        self,
        frame: bytearray,
        at: int,
        count: int,
        topic: TopicInfo,
        offsets: list[OffsetToCommit],
        reply: list[bytes | bytearray],
    ) -> int:
        """Add the partitions of a topic; return their end."""
        rest, metadata = self._rest(frame, at + (16 if self._has_epochs else 12))
        layout = _layout("iqi" if self._has_epochs else "iq", len(rest))
        end = at + count * layout.size
        if end > len(frame):
            raise OtherShape
        rows: Iterable[Any] = layout.iter_unpack(memoryview(frame)[at:end])
        if not self._has_epochs:
            rows = ((index, offset, NO_EPOCH, same) for index, offset, same in rows)
        name, partition_count, reply_row = topic.name, len(topic.partitions), self._reply_row
        for index, offset, epoch, same in rows:
            if same != rest or not 0 <= index < partition_count:
                raise OtherShape
            offsets.append(OffsetToCommit(name, index, offset, epoch, metadata))
            reply.append(reply_row(index, 0))
        return end

    def _rest(self, frame: bytearray, at: int) -> tuple[bytes, str]:
        """Bytes behind the numbers of a row, and the metadata in them."""
        if self._is_flexible:
            end = at + (_compact(frame, at) or 1)
            start, stop = at + 1, self._end(frame, end)
        else:
            (size,) = _INT16.unpack_from(frame, at)
            if size < -1:
                raise OtherShape
            start = at + 2
            end = stop = start + max(0, size)
            if end > len(frame):
                raise OtherShape
        return bytes(frame[at:stop]), frame[start:end].decode()

    def _topic(self, frame: bytearray, at: int, image: ClusterImage) -> tuple[TopicInfo, int]:
        topic: TopicInfo | None
        if self._has_ids:
            end = at + UUID_SIZE_BYTES
            topic = image.topics_by_id.get(bytes(frame[at:end]))
        elif self._is_flexible:
            end = at + _compact(frame, at)
            topic = image.topics.get(frame[at + 1 : end].decode())
        else:
            end = at + 2 + max(0, _INT16.unpack_from(frame, at)[0])
            topic = image.topics.get(frame[at + 2 : end].decode())
        if topic is None:
            raise OtherShape
        return topic, end

    def _count(self, frame: bytearray, at: int) -> tuple[int, int]:
        """Length of an array that is not empty, and the position of its elements."""
        if not self._is_flexible:
            count, at = _INT32.unpack_from(frame, at)[0], at + 4
        else:
            count, at = frame[at], at + 1
            if count >= LONG_LENGTH:
                count, at = count - LONG_LENGTH + (_compact(frame, at) << 7), at + 1
                if count < LONG_LENGTH:  # not in the shortest form
                    raise OtherShape
            count -= 1
        if count <= 0:
            raise OtherShape
        return count, at

    def _end(self, frame: bytearray, at: int) -> int:
        """End of a struct. It must have no tagged fields."""
        if not self._is_flexible:
            return at
        if frame[at]:
            raise OtherShape
        return at + 1


def _compact(frame: bytearray, at: int) -> int:
    """A number of one byte: a length plus one, or 0 for null."""
    number = frame[at]
    if number >= LONG_LENGTH:
        raise OtherShape
    return number


@lru_cache(maxsize=256)
def _layout(numbers: str, rest_size_bytes: int) -> Struct:
    """Layout of a row."""
    return Struct(f">{numbers}{rest_size_bytes}s")
