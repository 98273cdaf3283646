"""Trailer of a segment object, behind the records: docs/formats/tier.md. Pure, except for the reads from a store."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from spark_connectors.segments.footers import Footer, FooterDamaged, decode, size_of
from spark_connectors.segments.sealed import Aborted
from spark_connectors.segments.stores import ObjectDamaged, Store, StoredObject

APART_BYTES: Final = 8 * 1024 * 1024  # between positions of a segment, and before the first one
FOOTER_LOOK_BYTES: Final = 4096  # a footer has some hundred bytes, unless transactions were aborted
_GROWTH: Final = 16
TAIL_SIZE_BYTES: Final = 64
_MAGIC: Final = b"KWSEGMT1"
_MAGIC_OF_ALL: Final = b"KWSEGMT"
_TAIL_FORMAT: Final = ">8sQ5QII"  # sizes of records, footer, index, aborted, epochs, producers; CRC, zero
_INDEX_ROW_FORMAT: Final = ">qqq"
_CRC_SIZE_BYTES: Final = 8


class Trailer(NamedTuple):
    """Fields of a Segment from a trailer: aborted transactions, and (offset, position) of some batches."""

    aborted: Aborted
    positions: tuple[tuple[int, int], ...]


def read_trailer(store: Store, key: str, size_bytes: int, digest: str) -> Trailer:
    """Read the trailer of an object with a segment of that size and digest, in one request. Raises ObjectGone,
    ObjectDamaged, StoreUnavailable.
    """
    with store.open(key) as found:
        data = found.read_at(size_bytes, found.size_bytes - size_bytes)
    return decode_trailer(data, key, size_bytes, digest)


def read_aborted(store: Store, key: str, size_bytes: int, digest: str) -> Aborted:
    """Read the aborted transactions, from the footer only: a few KiB. Raises as `read_trailer` does."""
    with store.open(key) as found:
        data = _footer_at(found, key, size_bytes)
    return _footer(data, key, size_bytes, digest).aborted


def _footer_at(found: StoredObject, key: str, position: int) -> bytes:
    """Read the footer, nearly always in one request."""
    look_bytes, data = FOOTER_LOOK_BYTES, b""
    while True:
        data += found.read_at(position + len(data), look_bytes - len(data))
        try:
            end = size_of(data)
        except FooterDamaged as error:
            raise ObjectDamaged(f"{key}: {error}") from error
        if end is not None:
            return data[:end]
        if len(data) < look_bytes:
            raise ObjectDamaged(f"{key} ends within its footer")
        look_bytes *= _GROWTH


def decode_trailer(data: bytes, key: str, size_bytes: int, digest: str) -> Trailer:
    """Decode all bytes behind `size_bytes` of records. Raises ObjectDamaged with `key`."""
    footer, places = decode_parts(data, key, size_bytes, digest)
    return Trailer(footer.aborted, spread(places))


def decode_parts(data: bytes, key: str, size_bytes: int, digest: str) -> tuple[Footer, tuple[tuple[int, int], ...]]:
    """Decode the whole footer, and (offset, position) of all batches in the index. Raises ObjectDamaged with `key`."""
    sizes = _sizes(data, key, size_bytes)
    footer = _footer(data[: sizes[0]], key, size_bytes, digest)
    rows = data[sizes[0] : sizes[0] + sizes[1]]
    if len(rows) % struct.calcsize(_INDEX_ROW_FORMAT):
        raise ObjectDamaged(f"{key} has an index that makes no sense")
    places = ((offset, position) for offset, position, _ in struct.iter_unpack(_INDEX_ROW_FORMAT, rows))
    return footer, tuple(places)


def _sizes(data: bytes, key: str, size_bytes: int) -> tuple[int, ...]:
    """Sizes of the parts, in order, after a check of sizes and CRC."""
    tail = data[-TAIL_SIZE_BYTES:]
    if len(tail) < TAIL_SIZE_BYTES or not tail.startswith(_MAGIC_OF_ALL):
        raise ObjectDamaged(f"{key} does not end as a segment does")
    magic, records, *sizes, checksum, _ = struct.unpack(_TAIL_FORMAT, tail)
    if magic != _MAGIC:
        raise ObjectDamaged(f"{key} was written by another version of Kafkawire")
    if records != size_bytes or sum(sizes) + TAIL_SIZE_BYTES != len(data):
        raise ObjectDamaged(f"{key} has parts of another size")
    if checksum != crc32c(data[:-_CRC_SIZE_BYTES]):
        raise ObjectDamaged(f"{key} has a trailer that fails its CRC")
    return tuple(sizes)


def _footer(data: bytes, key: str, size_bytes: int, digest: str) -> Footer:
    try:
        footer = decode(data)
    except FooterDamaged as error:
        raise ObjectDamaged(f"{key}: {error}") from error
    if (footer.size_bytes, footer.digest) != (size_bytes, digest):
        raise ObjectDamaged(f"{key} holds another segment")
    return footer


def spread(places: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Choose ascending (offset, position) pairs that are APART_BYTES apart, and from the start."""
    found: list[tuple[int, int]] = []
    reached = APART_BYTES
    for offset, position in places:
        if position >= reached:
            found.append((offset, position))
            reached = position + APART_BYTES
    return tuple(found)
