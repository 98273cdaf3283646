"""Headers: equal to the engine's, incomplete batches are left out, wrong ones are refused."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Marker, Outcome
from engine.batches.batch import Codec, Record, parse_header
from engine.batches.markers import build_marker
from spark_connectors.records.batches import HEADER_SIZE_BYTES, Batch, batches_of
from spark_connectors.records.errors import MalformedBatch
from spark_connectors.records.tests.written import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NOW_MS,
    TRANSACTIONAL,
    batch,
    sealed,
)


def patched(position: int, layout: str, value: int, *, with_right_crc: bool = True) -> bytes:
    """A batch of one record with a field of its header overwritten."""
    found = bytearray(batch(Record(b"k", b"v", NOW_MS)))
    struct.pack_into(layout, found, position, value)
    if with_right_crc:
        struct.pack_into(">I", found, 17, crc32c(found[21:]))
    return bytes(found)


def test_batch_header_equals_the_header_of_the_engine() -> None:
    log = batch(Record(), Record(timestamp_ms=5), codec=Codec.ZSTD, base_offset=7, producer=(1, 2, 3))
    [found] = batches_of(log)
    header = parse_header(log)
    assert found[1:14] == header
    assert (found.position, found.end, found.size_bytes) == (0, len(log), len(log))
    assert (found.base_offset, found.next_offset, found.records) == (7, 9, 2)
    assert (found.codec.name, found.base_timestamp_ms, found.max_timestamp_ms) == ("ZSTD", 0, 5)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "bit"),
    [
        ("is_log_append_time", LOG_APPEND_TIME),
        ("is_transactional", TRANSACTIONAL),
        ("has_delete_horizon", DELETE_HORIZON),
    ],
)
def test_attributes(name: str, bit: int) -> None:
    assert [getattr(*(batches_of(batch(Record(), attributes=each))[0], name)) for each in (0, bit, 0xF8 & ~0x20)] == [
        False,
        True,
        True,
    ]


def test_batches_lie_one_behind_the_other() -> None:
    parts = [
        batch(Record(b"a"), base_offset=3),
        batch(Record(b"b"), kept=[], base_offset=4),
        batch(Record(), base_offset=9),
    ]
    found = batches_of(memoryview(b"".join(parts)))
    assert [(one.position, one.base_offset, one.records) for one in found] == [
        (0, 3, 1),
        (len(parts[0]), 4, 0),
        (len(parts[0] + parts[1]), 9, 1),
    ]


@given(st.integers(0, 300))
def test_incomplete_batch_at_the_end_is_left_out(size_bytes: int) -> None:
    one, two = batch(Record(b"a")), batch(Record(b"b"), base_offset=1)
    found = batches_of((one + two)[:size_bytes])
    assert len(found) == (size_bytes >= len(one)) + (size_bytes >= len(one + two))


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (patched(16, ">b", 1), "format v1"),
        (patched(16, ">b", 0), "format v0"),
        (patched(8, ">i", 48), "a batch of 48 bytes"),
        (patched(8, ">i", -1), "a batch of -1 bytes"),
        (patched(25, ">h", 1, with_right_crc=False), "CRC"),
        (patched(17, ">I", 0, with_right_crc=False), "CRC"),
        (patched(0, ">q", -1), "begins at offset -1"),
        (patched(23, ">i", -1), "from offset 0 to -1"),
        (batch(Record(), base_offset=2**63 - 1), "to 0 behind it"),
        (patched(57, ">i", -1), "-1 records in 1 offsets"),
        (patched(57, ">i", 2), "2 records in 1 offsets"),
        (patched(21, ">h", 5), "no codec has the number 5"),
        (batch(Record(), Record()) + batch(Record(), base_offset=1), "begins at offset 1, below 2"),
    ],
)
def test_a_header_that_cannot_be_is_malformed(log: bytes, message: str) -> None:
    with pytest.raises(MalformedBatch, match=message):
        batches_of(log)


def test_the_greatest_offsets_there_are() -> None:
    [found] = batches_of(batch(Record(), base_offset=2**63 - 2))
    assert found.next_offset == 2**63 - 1


@given(st.binary(max_size=300))
def test_any_bytes_are_batches_or_malformed(noise: bytes) -> None:
    for log in (noise, batch(Record()) + noise):
        try:
            found = batches_of(log)
        except MalformedBatch:
            continue
        assert all(HEADER_SIZE_BYTES <= one.size_bytes <= len(log) - one.position for one in found)


def control(key: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    return batch(Record(key, b""), attributes=CONTROL | TRANSACTIONAL, producer=(5, 0, -1), codec=codec)


def marker(outcome: Outcome) -> bytes:
    return bytes(build_marker(Marker(5, 0, 0, outcome), NOW_MS))


def test_markers_say_how_a_transaction_ends() -> None:
    def is_abort(log: bytes) -> bool:
        [found] = batches_of(log)
        assert found.is_control
        return found.is_abort_marker

    assert is_abort(marker(Outcome.ABORT))
    assert not is_abort(marker(Outcome.COMMIT))
    assert is_abort(control(b"\0\0\0\0", codec=Codec.ZSTD))
    assert is_abort(control(b"\0\1\0\0and what later versions append"))
    assert not is_abort(control(b"\0\0\0\2"))  # a change of leaders, in logs of Kafka
    assert not is_abort(batch(Record(), attributes=CONTROL, kept=[]))  # emptied by compaction


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_control_batch_without_a_type_is_malformed(key: bytes | None) -> None:
    with pytest.raises(MalformedBatch, match="has no valid type"):
        batches_of(control(key))


def test_a_control_batch_of_noise_is_malformed() -> None:
    for body in (b"\xff" * 9, b"\0" * 5, b"\x10\0\0\0"):
        with pytest.raises(MalformedBatch, match="has no valid type"):
            batches_of(sealed(body, 1, attributes=CONTROL))


def test_a_batch_is_a_tuple() -> None:
    """A tuple is cheap to create and to pickle."""
    [found] = batches_of(batch(Record()))
    assert isinstance(found, Batch)
    assert isinstance(found, tuple)
