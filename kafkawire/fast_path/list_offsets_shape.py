"""ListOffsets requests for ends of partitions only, by version, and their replies, which are fixed except for numbers.

A client sends the same request again and again. It is decoded once as a whole, and its reply is encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from engine.api import Isolation, OffsetAtTimestamp, OffsetSpec
from kafkawire.fast_path.prefix_cache import SIZE_MAX_BYTES, learn
from kafkawire.handlers.list_offsets import isolation_of
from kafkawire.messages.list_offsets import (
    API_KEY,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkawire.requests.dispatch import INLINE_ELEMENTS_MAX
from kafkawire.requests.headers import CLIENT_ID_AT, decode_request_header, response_header
from kafkawire.wire.primitives import DecodeError

_ENDS: Final = (OffsetSpec.LATEST, OffsetSpec.EARLIEST)
_PACKED_ENDS: Final = frozenset(Struct(">q").pack(each) for each in _ENDS)
_FIRST_VERSION_WITH_EPOCHS: Final = 4
_FIRST_VERSION_WITH_TIMEOUT: Final = 10

_OFFSET: Final = Struct(">q")
_OFFSET_AND_EPOCH: Final = Struct(">qi")
_SAMPLE: Final = (
    b"\xfe" * 8
)  # an offset that occurs nowhere else in a reply: no text has this byte, no index this length


class DecodedPartition(NamedTuple):
    """Partition of a request, and the position of its offset in the reply."""

    topic: str
    partition: int
    leader_epoch: int
    spec: int
    reply_at: int


class DecodedListOffsets(NamedTuple):
    """Decoded request."""

    topics: Sequence[str]
    partitions: Sequence[DecodedPartition]
    isolation: Isolation
    has_epochs: bool  # whether the reply has leader epochs
    sample: bytes  # the reply, with sample offsets
    is_replica: bool  # whether the request has a replica id

    def reply(self, correlation_id: bytes | bytearray, found: Iterable[OffsetAtTimestamp]) -> bytearray:
        """The reply with the found offsets, without its size."""
        reply = bytearray(self.sample)
        reply[: len(correlation_id)] = correlation_id
        for partition, one in zip(self.partitions, found, strict=True):
            if self.has_epochs:
                _OFFSET_AND_EPOCH.pack_into(reply, partition.reply_at, one.offset, one.leader_epoch)
            else:
                _OFFSET.pack_into(reply, partition.reply_at, one.offset)
        return reply


class RequestShape:
    """Cache of decoded requests of one version."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._learned: dict[bytes, DecodedListOffsets] = {}
        no_tags = 3 if version >= ListOffsetsRequest.FLEXIBLE_FROM else 0  # of the partition, the topic, the request
        behind = no_tags + (4 if version >= _FIRST_VERSION_WITH_TIMEOUT else 0)
        self._last_spec = slice(-8 - behind, -behind or None)

    def read(self, frame: bytearray) -> DecodedListOffsets | None:
        """The decoded request; None if it asks for more than ends. Mostly its last timestamp shows that."""
        if bytes(frame[self._last_spec]) not in _PACKED_ENDS or len(frame) > CLIENT_ID_AT + SIZE_MAX_BYTES:
            return None
        key = bytes(frame[CLIENT_ID_AT:])
        return self._learned.get(key) or self._learn(frame, key)

    def _learn(self, frame: bytearray, key: bytes) -> DecodedListOffsets | None:
        try:
            _, body_start = decode_request_header(frame)
            request = ListOffsetsRequest.decode(frame, self._version, body_start, cap=INLINE_ELEMENTS_MAX)
        except DecodeError:
            return None
        decoded = _decoded(request, self._version)
        if decoded is not None:
            learn(self._learned, key, decoded)
        return decoded


def _decoded(request: ListOffsetsRequest, version: int) -> DecodedListOffsets | None:
    """The decoded request; None if it asks for more than ends, for nothing, or for a partition twice."""
    rows = [(topic.name, one) for topic in request.topics for one in topic.partitions]
    is_twice = len({(topic, one.partition_index) for topic, one in rows}) < len(rows)
    if not rows or is_twice or any(one.timestamp not in _ENDS for _, one in rows):
        return None
    sample, at = _sample_reply(request, version), 0
    partitions: list[DecodedPartition] = []
    for topic, one in rows:
        at = sample.index(_SAMPLE, at)
        partitions.append(DecodedPartition(topic, one.partition_index, one.current_leader_epoch, one.timestamp, at))
        at += len(_SAMPLE)
    topics = list(dict.fromkeys(topic.name for topic in request.topics))
    has_epochs, is_replica = version >= _FIRST_VERSION_WITH_EPOCHS, request.replica_id >= 0
    return DecodedListOffsets(topics, partitions, isolation_of(request), has_epochs, sample, is_replica)


def _sample_reply(request: ListOffsetsRequest, version: int) -> bytes:
    """An encoded reply with a sample in place of each offset."""
    (offset,) = _OFFSET.unpack(_SAMPLE)
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=offset)
                for one in topic.partitions
            ],
        )
        for topic in request.topics
        if topic.partitions
    ]
    return b"".join([response_header(API_KEY, version, 0), *ListOffsetsResponse(topics=topics).encode(version)])
