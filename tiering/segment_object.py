"""A segment as an object: the records at their positions, and a trailer behind them. docs/formats/tier.md.

Pure, except for `fetch_trailer`.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from engine.api import FileRange
from engine.tier import INDEX_ROW
from tiering.errors import OtherVersion, TierDamaged
from tiering.object_store import Content

if TYPE_CHECKING:
    from engine.tier import CopiedSegment
    from tiering.manifest.manifest import SegmentEntry
    from tiering.object_store import ObjectStore

TAIL_SIZE_BYTES = 64
_MAGIC, _MAGIC_OF_ALL = b"KWSEGMT1", b"KWSEGMT"
_TAIL = Struct(">8sQ5Q")  # with the sizes of records, footer, index, aborted, epochs and producers
_CHECKSUM = Struct(">II")
_EPOCH = Struct(">iq")
_DIGEST_SIZE_BYTES = 16


class Tail(NamedTuple):
    """The sizes of the parts of an object, in bytes, in their order."""

    records: int
    footer: int
    index_rows: int
    aborted: int
    epochs: int
    producers: int

    @property
    def object_size_bytes(self) -> int:
        return sum(self) + TAIL_SIZE_BYTES


class Trailer(NamedTuple):
    """The parts of an object behind the records, in the formats of a log dir."""

    footer: bytes
    index_rows: bytes
    aborted: bytes
    epochs: tuple[tuple[int, int], ...]
    producers: bytes


class SegmentObject(NamedTuple):
    """An object to put, and the digest in its name."""

    content: Content
    digest: str


def make_object(copied: CopiedSegment) -> SegmentObject:
    """The object of a copied segment: always the same for the same segment and producers."""
    epochs = b"".join([_EPOCH.pack(*one) for one in copied.epochs])
    parts = copied.footer, copied.index_rows, copied.aborted, epochs, copied.producers
    trailer = b"".join(parts) + _TAIL.pack(_MAGIC, copied.facts.size_bytes, *map(len, parts))
    trailer += _CHECKSUM.pack(crc32c(trailer), 0)
    digest = blake2b(copied.facts.digest + trailer, digest_size=_DIGEST_SIZE_BYTES).hexdigest()
    records = FileRange(copied.file, 0, copied.facts.size_bytes)
    return SegmentObject(Content((records, trailer), crc32c(trailer, copied.checksum)), digest)


def read_tail(data: bytes, key: str) -> Tail:
    """Decode the last bytes of an object. Raises TierDamaged and OtherVersion, with `key` in their texts."""
    if len(data) != TAIL_SIZE_BYTES or not data.startswith(_MAGIC_OF_ALL):
        raise TierDamaged(f"{key} does not end as a segment does")
    magic, *sizes = _TAIL.unpack_from(data)
    if magic != _MAGIC:
        raise OtherVersion(f"{key} was written by another version of Kafkawire")
    return Tail(*sizes)


def read_trailer(data: bytes, key: str) -> Trailer:
    """Decode all behind the records, the tail included. Raises as `read_tail`."""
    tail = read_tail(data[-TAIL_SIZE_BYTES:], key)
    if len(data) != tail.object_size_bytes - tail.records:
        raise TierDamaged(f"{key} has parts of another size")
    checksum, _ = _CHECKSUM.unpack(data[-_CHECKSUM.size :])
    if checksum != crc32c(data[: -_CHECKSUM.size]):
        raise TierDamaged(f"{key} has a trailer that fails its CRC")
    parts, position = [], 0
    for size_bytes in tail[1:]:
        parts.append(data[position : position + size_bytes])
        position += size_bytes
    footer, index_rows, aborted, epochs, producers = parts
    if len(index_rows) % INDEX_ROW.size or len(epochs) % _EPOCH.size:
        raise TierDamaged(f"{key} has parts that make no sense")
    history = tuple((epoch, start) for epoch, start in _EPOCH.iter_unpack(epochs))
    return Trailer(footer, index_rows, aborted, history, producers)


async def fetch_trailer(store: ObjectStore, key: str, entry: SegmentEntry) -> Trailer:
    """Read the trailer of an object that a manifest names. Raises as `read_tail`, and StoreError."""
    return read_trailer(await store.get(key, entry.size_bytes, entry.object_size_bytes - entry.size_bytes), key)
