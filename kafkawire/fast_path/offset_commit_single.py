"""Commits of one offset without metadata, which many clients repeat: known by all bytes before the row.

The cache belongs to one image of the cluster: drop it when the image changes.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from coordinator.groups.api import OffsetToCommit
from kafkawire.fast_path.prefix_cache import SIZE_MAX_BYTES, learn
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.requests.headers import CLIENT_ID_AT

if TYPE_CHECKING:
    from coordinator.api import TopicInfo
    from kafkawire.fast_path.offset_commit_shape import DecodedCommit

T = TypeVar("T")

_UP_TO: Final = CLIENT_ID_AT + SIZE_MAX_BYTES
_ROW: Final = Struct(">iqi")  # partition, offset, leader epoch


class _Learned(NamedTuple, Generic[T]):
    committer: T
    topics: list[TopicInfo]  # exactly one
    reply_head: bytes  # the reply up to its row


class SingleCommits(Generic[T]):
    """Cache of single commits of one version with leader epochs. T is the committer."""

    def __init__(self, version: int) -> None:
        is_flexible = version >= OffsetCommitRequest.FLEXIBLE_FROM
        # An empty text; no tagged fields of the row, the topic and the request.
        self._rest = b"\1\0\0\0" if is_flexible else b"\0\0"
        self._row_size_bytes = _ROW.size + len(self._rest)
        self._reply_row = Struct(">ih3x" if is_flexible else ">ih")
        self._learned: dict[bytes, _Learned[T]] = {}

    def read(self, frame: bytearray) -> tuple[T, DecodedCommit] | None:
        """The committer and the offsets of the request, if its prefix is cached."""
        at = len(frame) - self._row_size_bytes
        if not CLIENT_ID_AT < at <= _UP_TO or not frame.endswith(self._rest):
            return None
        learned = self._learned.get(bytes(frame[CLIENT_ID_AT:at]))
        if learned is None:
            return None
        committer, topics, reply_head = learned
        [topic] = topics
        index, offset, leader_epoch = _ROW.unpack_from(frame, at)
        if not 0 <= index < len(topic.partitions):
            return None
        offsets = [OffsetToCommit(topic.name, index, offset, leader_epoch, "")]
        return committer, (topics, offsets, reply_head + self._reply_row.pack(index, 0))

    def learn(self, frame: bytearray, committer: T, decoded: DecodedCommit) -> None:
        """Cache the prefix of a request that was decoded to its last byte, if it is such a commit."""
        topics, offsets, reply = decoded
        at = len(frame) - self._row_size_bytes
        if len(offsets) > 1 or offsets[0].metadata or not frame.endswith(self._rest):
            return
        reply_head = reply[: -self._reply_row.size]
        learn(self._learned, bytes(frame[CLIENT_ID_AT:at]), _Learned(committer, topics, reply_head))

    def forget(self) -> None:
        self._learned.clear()
