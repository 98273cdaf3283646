"""Encoding of segments as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from crc32c import crc32c

from engine.api import NO_TIMESTAMP_MS
from engine.tier import INDEX_ROW, CopiedSegment, SegmentFacts
from testkit.object_store_suite import Bytes
from tiering.errors import OtherVersion, TierDamaged
from tiering.segment_object import TAIL_SIZE_BYTES, make_object, read_tail, read_trailer

if TYPE_CHECKING:
    from engine.files.filesystem import File

RECORDS = bytes(range(256)) * 10


def copied(**changes: Any) -> CopiedSegment:
    facts = SegmentFacts(0, 10, len(RECORDS), 10, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS, 3, b"records", has_aborted=True)
    rows = b"".join(value.to_bytes(8, "big") for value in (0, 0, 5, 4, 1000, 7))
    epochs = ((0, 0), (3, 5))
    file = cast("File", Bytes(RECORDS))
    whole = CopiedSegment(facts, file, crc32c(RECORDS), b"the footer", rows, b"aborted", epochs, b"producers")
    return whole._replace(**changes)


def bytes_of(segment: CopiedSegment) -> bytes:
    return b"".join(make_object(segment).content.slices())


def test_segment_object_has_the_records_and_their_trailer() -> None:
    data = bytes_of(copied())
    assert data.startswith(RECORDS)
    tail = read_tail(data[-TAIL_SIZE_BYTES:], "key")
    assert tail.records == len(RECORDS)
    assert tail.object_size_bytes == len(data) == make_object(copied()).content.size_bytes
    trailer = read_trailer(data[len(RECORDS) :], "key")
    assert trailer.footer == b"the footer"
    assert list(INDEX_ROW.iter_unpack(trailer.index_rows)) == [(0, 0, 5), (4, 1000, 7)]
    assert trailer.aborted == b"aborted"
    assert trailer.epochs == ((0, 0), (3, 5))
    assert trailer.producers == b"producers"


def test_absent_parts_of_a_trailer_are_empty() -> None:
    data = bytes_of(copied(index_rows=b"", aborted=b"", epochs=(), producers=b""))
    assert read_trailer(data[len(RECORDS) :], "key") == (b"the footer", b"", b"", (), b"")


def test_the_digest_names_all_of_it() -> None:
    facts = copied().facts
    others = [
        copied(producers=b"others"),
        copied(footer=b"another"),
        copied(epochs=((0, 0),)),
        copied(facts=facts._replace(digest=b"other records")),
        copied(aborted=b"abortedproducers", producers=b""),  # the same bytes in other parts
    ]
    assert make_object(copied()).digest == make_object(copied()).digest
    assert len({make_object(one).digest for one in (copied(), *others)}) == 1 + len(others)


def test_every_flipped_bit_of_a_trailer_is_found() -> None:
    data = bytes_of(copied())[len(RECORDS) :]
    for position in range(len(data) - 4):  # behind its CRC is nothing
        flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises((TierDamaged, OtherVersion), match="the-key"):
            read_trailer(flipped, "the-key")


def test_another_version_is_refused() -> None:
    data = bytes_of(copied())
    other = data[-TAIL_SIZE_BYTES:].replace(b"KWSEGMT1", b"KWSEGMT2")
    with pytest.raises(OtherVersion, match="the-key"):
        read_tail(other, "the-key")


@pytest.mark.parametrize("size_bytes", [0, 10, TAIL_SIZE_BYTES - 1])
def test_short_trailer_raises_tier_damaged(size_bytes: int) -> None:
    with pytest.raises(TierDamaged, match="the-key"):
        read_trailer(bytes_of(copied())[-size_bytes:] if size_bytes else b"", "the-key")
