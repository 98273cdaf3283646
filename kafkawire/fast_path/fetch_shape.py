"""A Fetch request decoded by hand, in the versions that clients use now.

The rows of a topic's partitions have one size, so one call reads them all. Unusual requests are left to the decoder:
tagged fields, long or non-ASCII names, fields of replicas, very many partitions, and frames that are no valid request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.api import NO_EPOCH
from kafkawire.fetching.sessions import FetchTarget
from kafkawire.handlers.fetch import FIRST_VERSION_WITH_IDS
from kafkawire.messages.fetch import FetchRequest
from kafkawire.requests.headers import CLIENT_ID_AT
from kafkawire.wire.primitives import UUID_SIZE_BYTES, ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from kafkawire.fetching.sessions import TargetKey

LENGTH_MAX: Final = 126  # of an array or a text: the maximum of a compact length in one byte
PARTITIONS_MAX: Final = 250  # of all topics: about 0.2 ms of the event loop
FRAME_SIZE_MAX_BYTES: Final = 16 * 1024  # including bytes behind the request

_FIRST_VERSION: Final = 11
_LAST_VERSION: Final = FetchRequest.VERSIONS[1]
_FIRST_VERSION_WITHOUT_REPLICA_IDS: Final = 15

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_FIELDS: Final = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, session id and epoch

# Row of a partition: index, leader epoch, offset, from version 12 on the last fetched epoch, then a replica's log
# start (skipped), max bytes, and from version 12 on the number of tagged fields.
_ROW_11: Final = Struct(">iiq8xi")
_ROW_12: Final = Struct(">iiqi8xiB")


class UnusualError(Exception):
    """A request that this module does not decode."""


class DecodedFetch(NamedTuple):
    """Decoded fields of a request; see `kafkawire.fetching.work.FetchParameters`."""

    targets: list[FetchTarget]
    forgotten: list[TargetKey]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int


def read_request(frame: bytearray) -> DecodedFetch | None:
    """Decode the request; None if it is left to the general path, or invalid."""
    version = frame[3]
    if frame[2] or not _FIRST_VERSION <= version <= _LAST_VERSION or len(frame) > FRAME_SIZE_MAX_BYTES:
        return None
    reader = _FlexibleReader(frame) if version >= FetchRequest.FLEXIBLE_FROM else _ClassicReader(frame)
    try:
        return _read(reader, version)
    except (UnusualError, IndexError, struct_error):
        return None


def _read(reader: _Reader, version: int) -> DecodedFetch:
    reader.short_text()  # the client's id
    reader.skip_tags()
    if version < _FIRST_VERSION_WITHOUT_REPLICA_IDS and reader.read(_INT32)[0] >= 0:
        raise UnusualError  # from version 15 on it is a tagged field
    fields = reader.read(_FIELDS)
    by_id = version >= FIRST_VERSION_WITH_IDS
    targets: dict[TargetKey, FetchTarget] = {}  # each partition once; the last entry counts
    room = PARTITIONS_MAX
    for _ in range(reader.count()):
        room -= _read_topic(reader, version, targets, by_id=by_id)
        if room < 0:
            raise UnusualError
    forgotten: list[TargetKey] = []
    for _ in range(reader.count()):
        name = reader.topic_id() if by_id else reader.text()
        forgotten += [(name, partition) for (partition,) in reader.rows(_INT32)]
        reader.skip_tags()
        if len(forgotten) > PARTITIONS_MAX:
            raise UnusualError
    reader.text()  # the rack
    reader.skip_tags()
    reader.check_end()
    return DecodedFetch(list(targets.values()), forgotten, *fields)


def _read_topic(reader: _Reader, version: int, found: dict[TargetKey, FetchTarget], *, by_id: bool) -> int:
    """Add the partitions of a topic to `found`; return their number."""
    name, topic_id = ("", reader.topic_id()) if by_id else (reader.text(), ZERO_UUID)
    count = 0
    for partition, leader_epoch, offset, last_epoch, max_bytes, tags in _rows(reader, version):
        if tags:
            raise UnusualError
        target = FetchTarget(
            topic=name,
            topic_id=topic_id,
            partition=partition,
            by_id=by_id,
            fetch_offset=offset,
            max_size_bytes=max_bytes,
            leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,  # a negative epoch means none, as in Kafka
            last_fetched_epoch=last_epoch if last_epoch >= 0 else NO_EPOCH,
        )
        found[target.key] = target
        count += 1
    reader.skip_tags()
    return count


def _rows(reader: _Reader, version: int) -> Iterable[tuple[int, ...]]:
    """Rows of a topic's partitions, in the form of version 12."""
    if version >= FetchRequest.FLEXIBLE_FROM:
        return reader.rows(_ROW_12)
    return ((index, epoch, offset, NO_EPOCH, size, 0) for index, epoch, offset, size in reader.rows(_ROW_11))


class _Reader(ABC):
    """Reader of a frame. A frame that is too short is noticed at the next read, or by `check_end`."""

    __slots__ = ("_frame", "at")

    def __init__(self, frame: bytearray) -> None:
        self._frame = frame
        self.at = CLIENT_ID_AT

    @abstractmethod
    def count(self) -> int:
        """Length of an array, which must not be null or too long."""

    @abstractmethod
    def text(self) -> str:
        """A text, which must not be null or too long."""

    @abstractmethod
    def skip_tags(self) -> None:
        """Skip tagged fields, of which there must be none."""

    def read(self, layout: Struct) -> tuple[Any, ...]:
        at = self.at
        self.at = at + layout.size
        return layout.unpack_from(self._frame, at)

    def rows(self, layout: Struct) -> Iterator[tuple[Any, ...]]:
        """Rows of an array."""
        size_bytes = layout.size * self.count()
        at = self.at
        self.at = at + size_bytes
        return layout.iter_unpack(self._frame[at : self.at])

    def topic_id(self) -> bytes:
        at = self.at
        self.at = at + UUID_SIZE_BYTES
        return bytes(self._frame[at : self.at])

    def short_text(self) -> str:
        """A text with a length of two bytes."""
        at = self.at + _INT16.size
        size = _INT16.unpack_from(self._frame, self.at)[0]
        self.at = at + size
        found = self._frame[at : self.at]
        if not 0 <= size <= LENGTH_MAX or not found.isascii():
            raise UnusualError
        return found.decode()

    def check_end(self) -> None:
        """Check that the request is complete. Bytes behind its end are ignored, as in Kafka."""
        if self.at > len(self._frame):
            raise UnusualError


class _ClassicReader(_Reader):
    """Lengths of two and four bytes, no tagged fields."""

    __slots__ = ()

    def count(self) -> int:
        count: int = self.read(_INT32)[0]
        if not 0 <= count <= LENGTH_MAX:
            raise UnusualError
        return count

    def text(self) -> str:
        return self.short_text()

    def skip_tags(self) -> None:
        """Do nothing: these versions have no tagged fields."""


class _FlexibleReader(_Reader):
    """Compact lengths of one byte, plus one; tagged fields."""

    __slots__ = ()

    def count(self) -> int:
        count = self._frame[self.at] - 1
        self.at += 1
        if not 0 <= count <= LENGTH_MAX:
            raise UnusualError
        return count

    def text(self) -> str:
        at = self.at
        size = self._frame[at]
        self.at = at + size
        found = self._frame[at + 1 : self.at]
        if not 0 < size <= LENGTH_MAX + 1 or not found.isascii():
            raise UnusualError
        return found.decode()

    def skip_tags(self) -> None:
        if self._frame[self.at]:
            raise UnusualError
        self.at += 1
