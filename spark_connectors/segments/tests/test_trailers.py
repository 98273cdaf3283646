"""Trailers of objects are read as the broker wrote them, or refused."""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Callable
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from engine.logs.segments.footer import Footer, encode
from engine.sealed import APART_BYTES
from engine.upkeep import sealed_listing
from spark_connectors.segments import footers, stores
from spark_connectors.segments.footers import FooterDamaged, decode, size_of
from spark_connectors.segments.object_trailer import (
    FOOTER_LOOK_BYTES,
    TAIL_SIZE_BYTES,
    Trailer,
    decode_trailer,
    read_aborted,
    read_trailer,
    spread,
)
from spark_connectors.segments.stores import ObjectDamaged, ObjectGone, Store, StoreUnavailable
from testkit.bucket_broker import Bucket, Written

NUMBERS = st.integers(0, 2**63 - 1)
TRANSACTIONS = st.tuples(NUMBERS, NUMBERS, NUMBERS)
FOOTERS = st.builds(
    Footer,
    *[st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1), *[NUMBERS] * 9],
    st.binary(min_size=32, max_size=32),
    st.lists(TRANSACTIONS, max_size=5).map(tuple),
)
ABORTED = ((7, 3, 9), (8, 1, 12))
MANY = tuple((2**40 + number, number, number + 1) for number in range(10_000))
MIB = 1024 * 1024


@pytest.fixture
def store(bucket: Bucket) -> Store:
    return Store(str(bucket.directory))


def named(written: Written) -> tuple[str, int, str]:
    return written.key, written.entry.size_bytes, written.entry.records_digest


# --- footers


@given(FOOTERS, st.binary(max_size=20))
def test_decoded_footer_equals_the_footer_of_the_engine(footer: Footer, behind: bytes) -> None:
    data = encode(footer)
    assert decode(data) == (footer.base_offset, footer.size_bytes, footer.digest.hex(), footer.aborted)
    assert size_of(data + behind) == len(data)
    assert size_of(data[:-1]) is None


def sealed_text(text: bytes) -> bytes:
    return text + b"crc32=%08x\n" % crc32(text)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "fails its CRC"),
        (b"version=1\n", "fails its CRC"),
        (sealed_text(b"version=3\n"), "has version 3"),
        (sealed_text(b"version=1\n"), "makes no sense"),
        (sealed_text(b"version\n"), "makes no sense"),
        (sealed_text(b"version=1\naborted=1:2\n"), "makes no sense"),
        (sealed_text(b"version=1\naborted=-\nbase.offset=0\nsize.bytes=\ndigest=\n"), "makes no sense"),
        (sealed_text(b"\xff\n"), "makes no sense"),
    ],
)
def test_malformed_footer_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FooterDamaged, match=reason):
        decode(data)


# --- trailers


def test_trailer_has_aborted_transactions_and_batch_positions(bucket: Bucket, store: Store) -> None:
    rows = [(number, number * MIB, 0) for number in range(20)]
    written = bucket.copy(20, aborted=ABORTED, rows=rows)
    assert read_trailer(store, *named(written)) == Trailer(ABORTED, ((8, 8 * MIB), (16, 16 * MIB)))
    assert read_aborted(store, *named(written)) == ABORTED


def test_trailer_may_be_empty(bucket: Bucket, store: Store) -> None:
    written = bucket.copy(20, producers=b"")
    assert read_trailer(store, *named(written)) == Trailer((), ())
    assert read_aborted(store, *named(written)) == ()


@given(st.lists(st.integers(0, 3 * APART_BYTES), max_size=30))
def test_positions_equal_the_positions_that_the_broker_returns(apart: list[int]) -> None:
    positions = [sum(apart[: count + 1]) for count in range(len(apart))]
    assert list(spread(enumerate(positions))) == sealed_listing.spread(enumerate(positions))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Position and size of each read."""
    made: list[tuple[int, int]] = []
    read_at = stores.StoredObject.read_at

    def counted(found: stores.StoredObject, position: int, size_bytes: int) -> bytes:
        made.append((position, size_bytes))
        return read_at(found, position, size_bytes)

    monkeypatch.setattr(stores.StoredObject, "read_at", counted)
    return made


def test_trailer_is_read_with_one_request(bucket: Bucket, store: Store, requests: list[tuple[int, int]]) -> None:
    written = bucket.copy(20, aborted=ABORTED, producers=b"p" * MIB)
    size_bytes = written.entry.size_bytes
    assert read_aborted(store, *named(written)) == ABORTED
    assert requests == [(size_bytes, FOOTER_LOOK_BYTES)]
    requests.clear()
    read_trailer(store, *named(written))
    assert requests == [(size_bytes, written.entry.object_size_bytes - size_bytes)]


def test_a_long_footer_takes_a_few(bucket: Bucket, store: Store, requests: list[tuple[int, int]]) -> None:
    written = bucket.copy(20, aborted=MANY)
    assert read_aborted(store, *named(written)) == MANY
    assert len(requests) == 3
    assert all(before[0] + before[1] == behind[0] for before, behind in pairwise(requests))


def test_every_flipped_bit_of_a_trailer_is_found(bucket: Bucket) -> None:
    written = bucket.copy(20, aborted=ABORTED, rows=[(0, 0, 0), (9, 9 * MIB, 0)])
    data = written.trailer
    assert decode_trailer(data, *named(written)).aborted == ABORTED
    for position in range(len(data) - 4):  # the last bytes are behind the CRC
        flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(ObjectDamaged, match=written.key):
            decode_trailer(flipped, *named(written))
        with pytest.raises(ObjectDamaged, match=written.key):
            decode_trailer(data[:position], *named(written))


def test_every_flipped_bit_of_a_footer_is_found(bucket: Bucket, store: Store) -> None:
    written = bucket.copy(20, aborted=ABORTED)
    path, size_bytes = bucket.path(written.key), written.entry.size_bytes
    data = path.read_bytes()
    footer_size_bytes = footers.size_of(written.trailer)
    assert footer_size_bytes is not None
    for position in range(size_bytes, size_bytes + footer_size_bytes):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(ObjectDamaged, match=written.key):
            read_aborted(store, *named(written))
        path.write_bytes(data[:position])
        with pytest.raises(ObjectDamaged, match=written.key):
            read_aborted(store, *named(written))


def with_crc(data: bytes) -> bytes:
    return data[:-8] + struct.pack(">II", crc32c(data[:-8]), 0)


def test_a_trailer_of_another_version_is_refused(bucket: Bucket) -> None:
    written = bucket.copy(20)
    tail = written.trailer[-TAIL_SIZE_BYTES:].replace(b"KWSEGMT1", b"KWSEGMT2")
    with pytest.raises(ObjectDamaged, match="another version"):
        decode_trailer(with_crc(written.trailer[:-TAIL_SIZE_BYTES] + tail), *named(written))


def test_parts_that_make_no_sense_are_refused(bucket: Bucket) -> None:
    """The CRC is right."""
    written = bucket.copy(20, rows=[(0, 0, 0)])
    tail = list(struct.unpack(">8sQ5QII", written.trailer[-TAIL_SIZE_BYTES:]))
    for changes, reason in (({3: -1, 4: 1}, "an index that"), ({2: -1, 3: 1}, "the footer"), ({2: 1}, "another size")):
        changed = [value + changes.get(place, 0) if place else value for place, value in enumerate(tail)]
        data = written.trailer[:-TAIL_SIZE_BYTES] + struct.pack(">8sQ5QII", *changed)
        with pytest.raises(ObjectDamaged, match=reason):
            decode_trailer(with_crc(data), *named(written))


@pytest.mark.parametrize("read", [read_trailer, read_aborted])
def test_another_segment_is_not_taken_for_it(
    bucket: Bucket, store: Store, read: Callable[[Store, str, int, str], object]
) -> None:
    written = bucket.copy(20)
    key, size_bytes, digest = named(written)
    with pytest.raises(ObjectDamaged, match=f"{key} holds another segment"):
        read(store, key, size_bytes, digest.replace("0", "1"))
    for other in (size_bytes - 1, size_bytes + 1, 2**40):
        with pytest.raises(ObjectDamaged, match=key):
            read(store, key, other, digest)


@pytest.mark.parametrize("read", [read_trailer, read_aborted])
def test_missing_object_raises(bucket: Bucket, store: Store, read: Callable[[Store, str, int, str], object]) -> None:
    written = bucket.copy(20)
    bucket.path(written.key).unlink()
    with pytest.raises(ObjectGone, match=written.key):
        read(store, *named(written))
    bucket.path(written.key).mkdir()
    with pytest.raises(StoreUnavailable, match=written.key):
        read(store, *named(written))
