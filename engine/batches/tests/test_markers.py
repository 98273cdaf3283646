"""Markers have the same bytes as Kafka's, and a damaged batch is no marker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import FIRST_PROTOCOL, Marker, Outcome
from engine.batches.batch import (
    CONTROL_BIT,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Record,
    build_batch,
    has_right_crc,
    parse_header,
)
from engine.batches.markers import build_marker, parse_marker
from engine.errors import CorruptMessage
from engine.tests.single_batches import NOW_MS

markers = st.builds(
    Marker,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from(Outcome),
    st.just(FIRST_PROTOCOL),  # which is not written
)
# Apache Kafka 4.3.1: MemoryRecords.withEndTransactionMarker of offset 0, time 1,600,000,000,000, no leader epoch,
# producer 4711 in epoch 7, COMMIT, coordinator epoch 3.
KAFKAS = bytes.fromhex(
    "000000000000000000000042ffffffff02935b168700300000000000000174876e800000000174876e80000000000000001267"
    "0007ffffffff000000012000000008000000010c00000000000300"
)


def control(key: bytes | None, value: bytes | None, attributes: int = TRANSACTIONAL_BIT | CONTROL_BIT) -> bytearray:
    return build_batch([Record(key, value, NOW_MS)], attributes=attributes, producer=(4711, 7, NO_SEQUENCE))


@given(markers)
def test_parse_marker_returns_the_marker_that_was_built(marker: Marker) -> None:
    batch = build_marker(marker, NOW_MS)
    header = parse_header(batch)
    assert has_right_crc(memoryview(batch), header)
    assert header.is_control
    assert header.is_transactional
    assert not header.has_sequence
    assert (header.size_bytes, header.base_timestamp_ms, header.max_timestamp_ms) == (len(batch), NOW_MS, NOW_MS)
    assert parse_marker(header, batch) == marker


def test_the_bytes_are_kafkas() -> None:
    marker = Marker(4711, 7, 3, Outcome.COMMIT)
    assert build_marker(marker, 1_600_000_000_000) == KAFKAS
    assert parse_marker(parse_header(KAFKAS), KAFKAS) == marker


def test_newer_versions_append_fields() -> None:
    batch = control(b"\0\1\0\0more", b"\0\2\0\0\0\5more")
    assert parse_marker(parse_header(batch), batch) == Marker(4711, 7, 5, Outcome.ABORT)


@pytest.mark.parametrize(
    "batch",
    [
        control(b"\0\0\0\2", b"\0\0\0\0\0\5"),  # LEADER_CHANGE
        control(b"\0\0\0\7", b""),  # not known yet
        control(b"\0\0\0\1", b"\0\0\0\0\0\5", CONTROL_BIT),  # of no transaction
    ],
)
def test_other_control_batches_end_no_transaction(batch: bytearray) -> None:
    assert parse_marker(parse_header(batch), batch) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\5"),
        (b"\0\0\0", b"\0\0\0\0\0\5"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\5"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\5"),
    ],
)
def test_a_marker_with_a_damaged_key_or_value_raises_corrupt_message(key: bytes | None, value: bytes | None) -> None:
    batch = control(key, value)
    with pytest.raises(CorruptMessage):
        parse_marker(parse_header(batch), batch)


def test_a_marker_emptied_by_compaction_ends_no_transaction() -> None:
    batch = control(b"\0\0\0\1", b"\0\0\0\0\0\5")
    header = parse_header(batch)._replace(record_count=0)
    assert parse_marker(header, batch[:61]) is None


def test_a_marker_without_its_record_raises_corrupt_message() -> None:
    batch = control(b"\0\0\0\1", b"\0\0\0\0\0\5")
    with pytest.raises(CorruptMessage):
        parse_marker(parse_header(batch), batch[:61])
