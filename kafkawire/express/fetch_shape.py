"""A Fetch request read by hand, from version 11 on: straight to what the broker keeps of it.

The rows of a topic's partitions have one size, so one call reads them all. What is unusual is left to the decoder:
tagged fields, names beyond ASCII, what only a replica sends, very many elements, and frames that are no request at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from engine.api import NO_EPOCH
from kafkawire.fetching.sessions import FetchTarget, TargetKey
from kafkawire.messages.fetch import FetchRequest
from kafkawire.wire.primitives import ZERO_UUID, DecodeError, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

ELEMENTS_MAX: Final = 250  # of all arrays together: some 0.2 ms of the loop
TEXT_LENGTH_MAX: Final = 249  # as the longest name of a topic
FIRST_VERSION_WITH_IDS: Final = 13
CORRELATION_ID_AT: Final = 4  # behind key and version
CLIENT_ID_AT: Final = 8

_FIRST_VERSION: Final = 11
_LAST_VERSION: Final = FetchRequest.VERSIONS[1]
_FIRST_VERSION_WITHOUT_REPLICA_IDS: Final = 15
_TOPIC_ID_SIZE_BYTES: Final = 16

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ASKED: Final = Struct(">iiibii")  # max wait, min bytes, max bytes, isolation level, session id and epoch

# Of a partition: index, leader epoch, offset, from version 12 on the epoch read last, then, behind the log start that
# a replica tells, max bytes, and from version 12 on the number of tagged fields.
_ROW_11: Final = Struct(">iiq8xi")
_ROW_12: Final = Struct(">iiqi8xiB")
_NULL: Final = -1


class UnusualError(Exception):
    """Not to be read here."""


class AskedFetch:
    """What a request says; see `kafkawire.fetching.work.Asked`."""

    __slots__ = (
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "session_epoch",
        "session_id",
        "targets",
    )

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        session_id: int,
        session_epoch: int,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.targets: list[FetchTarget] = []
        self.forgotten: list[TargetKey] = []


def read_request(frame: bytearray, version: int) -> AskedFetch | None:
    """None: it is one for the decoder, or none at all."""
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        return None
    reader = _FlexibleReader(frame) if version >= FetchRequest.FLEXIBLE_FROM else _ClassicReader(frame)
    try:
        return _read(reader, version)
    except (UnusualError, DecodeError, IndexError, struct_error):
        return None


def _read(reader: _Reader, version: int) -> AskedFetch:
    reader.skip_client_id()
    reader.skip_tags()
    if version < _FIRST_VERSION_WITHOUT_REPLICA_IDS and reader.read(_INT32)[0] >= 0:
        raise UnusualError  # from then on it is a tagged field
    asked = AskedFetch(*reader.read(_ASKED))
    by_id = version >= FIRST_VERSION_WITH_IDS
    found: dict[TargetKey, FetchTarget] = {}  # each partition once; of repeated ones the last counts
    for _ in range(reader.count()):
        _read_topic(reader, version, found, by_id=by_id)
    asked.targets = list(found.values())
    for _ in range(reader.count()):
        name = reader.topic_id() if by_id else reader.text()
        asked.forgotten += [(name, partition) for (partition,) in reader.rows(_INT32)]
        reader.skip_tags()
    reader.text()  # the rack
    reader.skip_tags()
    reader.check_end()
    return asked


def _read_topic(reader: _Reader, version: int, found: dict[TargetKey, FetchTarget], *, by_id: bool) -> None:
    name, topic_id = ("", reader.topic_id()) if by_id else (reader.text(), ZERO_UUID)
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
            leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,  # any negative one is none, as in Kafka
            last_fetched_epoch=last_epoch if last_epoch >= 0 else NO_EPOCH,
        )
        found[target.key] = target
    reader.skip_tags()


def _rows(reader: _Reader, version: int) -> Iterable[tuple[int, ...]]:
    """As those of version 12, whatever the version has."""
    if version >= FetchRequest.FLEXIBLE_FROM:
        return reader.rows(_ROW_12)
    return ((index, epoch, offset, NO_EPOCH, size, 0) for index, epoch, offset, size in reader.rows(_ROW_11))


class _Reader(ABC):
    """Goes through a frame. What ends behind it is noticed when more is to be read, or by `check_end`."""

    __slots__ = ("_at", "_frame", "_room")

    def __init__(self, frame: bytearray) -> None:
        self._frame = frame
        self._at = CLIENT_ID_AT
        self._room = ELEMENTS_MAX

    def read(self, layout: Struct) -> tuple[Any, ...]:
        at = self._at
        self._at = at + layout.size
        return layout.unpack_from(self._frame, at)

    def rows(self, layout: Struct) -> Iterator[tuple[Any, ...]]:
        """An array of them."""
        size_bytes = layout.size * self.count()
        return layout.iter_unpack(self._take(size_bytes))

    def topic_id(self) -> bytes:
        return bytes(self._take(_TOPIC_ID_SIZE_BYTES))

    def skip_client_id(self) -> None:
        size = self._short_size()
        if size != _NULL:
            self._text(size)

    def check_end(self) -> None:
        """Bytes behind the end are ignored, as by Kafka."""
        if self._at > len(self._frame):
            raise UnusualError

    def count(self) -> int:
        """Of an array, which is not null and has no more elements than may be."""
        count = self._count()
        self._room -= count
        if count < 0 or self._room < 0:
            raise UnusualError
        return count

    @abstractmethod
    def text(self) -> str:
        """Which is not null."""

    @abstractmethod
    def skip_tags(self) -> None: ...

    @abstractmethod
    def _count(self) -> int:
        """Negative: null, or nothing that can be."""

    def _short_size(self) -> int:
        size: int = self.read(_INT16)[0]
        return size

    def _text(self, size: int) -> str:
        if not 0 <= size <= TEXT_LENGTH_MAX:
            raise UnusualError
        found = self._take(size)
        if not found.isascii():
            raise UnusualError
        return found.decode()

    def _take(self, size_bytes: int) -> bytearray:
        at = self._at
        self._at = at + size_bytes
        return self._frame[at : self._at]


class _ClassicReader(_Reader):
    """Lengths of two and four bytes, no tagged fields."""

    __slots__ = ()

    def text(self) -> str:
        return self._text(self._short_size())

    def skip_tags(self) -> None:
        """There are none."""

    def _count(self) -> int:
        count: int = self.read(_INT32)[0]
        return count


class _FlexibleReader(_Reader):
    """Compact lengths, and tagged fields, of which none are sent."""

    __slots__ = ()

    def text(self) -> str:
        return self._text(self._count())

    def skip_tags(self) -> None:
        if self._frame[self._at]:
            raise UnusualError
        self._at += 1

    def _count(self) -> int:
        count, self._at = read_uvarint(self._frame, self._at)
        return count - 1
