"""Records of groups and offsets: they are read as they were written, in Kafka's bytes, and unknown ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.groups.api import CommittedOffset
from coordinator.groups.records import (
    GroupKey,
    GroupRecord,
    Key,
    MemberRecord,
    OffsetKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from coordinator.state.record_fields import UnknownRecord

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=40)
MEMBERS = st.builds(
    MemberRecord, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, st.binary(max_size=40), st.binary(max_size=40)
)
GROUPS = st.builds(
    GroupRecord, TEXT, INT32, st.none() | TEXT, st.none() | TEXT, INT64, st.tuples() | st.tuples(MEMBERS)
)
KEYS = st.builds(GroupKey, TEXT) | st.builds(OffsetKey, TEXT, TEXT, INT32)


@given(KEYS)
def test_keys_are_read_as_written(key: Key) -> None:
    assert decode_key(memoryview(encode_key(key))) == key


@given(GROUPS)
def test_groups_are_read_as_written(group: GroupRecord) -> None:
    assert decode_value(GroupKey("g"), memoryview(encode_value(group))) == group


@given(INT64, INT32, TEXT, INT64)
def test_offsets_are_read_as_written(offset: int, leader_epoch: int, metadata: str, committed_ms: int) -> None:
    value = CommittedOffset(offset, leader_epoch, metadata, committed_ms)
    assert decode_value(OffsetKey("g", "t", 0), memoryview(encode_value(value))) == value


def test_an_offset_with_its_own_expiry_has_no_epoch() -> None:
    value = CommittedOffset(5, 3, "m", 1_000, expires_ms=2_000)
    found = decode_value(OffsetKey("g", "t", 0), memoryview(encode_value(value)))
    assert found == CommittedOffset(5, -1, "m", 1_000, expires_ms=2_000)


def test_bytes_are_kafkas() -> None:
    """OffsetCommitKey 1, OffsetCommitValue 3 and GroupMetadataKey 2 as Kafka's schemas lay them out."""
    assert encode_key(OffsetKey("grp", "top", 7)).hex() == "0001" + "0003677270" + "0003746f70" + "00000007"
    assert encode_key(GroupKey("grp")).hex() == "0002" + "0003677270"
    offset = CommittedOffset(258, 4, "m", 1)
    assert encode_value(offset).hex() == "0003" + "0000000000000102" + "00000004" + "00016d" + "0000000000000001"


def test_older_versions_are_read() -> None:
    old_offset = bytes.fromhex("0000" + "0000000000000005" + "00016d" + "0000000000000009")
    assert decode_value(OffsetKey("g", "t", 0), memoryview(old_offset)) == CommittedOffset(5, -1, "m", 9)
    member = "000161" + "000163" + "00022f68" + "00002710" + "00000001" + "53" + "00000001" + "41"
    old_group = bytes.fromhex("0000" + "0001" + "78" + "00000003" + "ffff" + "ffff" + "00000001" + member)
    expected = MemberRecord("a", None, "c", "/h", 10_000, 10_000, b"S", b"A")
    assert decode_value(GroupKey("g"), memoryview(old_group)) == GroupRecord("x", 3, None, None, -1, (expected,))


@pytest.mark.parametrize("tags", ["00", "01001000000000000000010000000000000002"])
def test_kafkas_newest_offsets_are_read(tags: str) -> None:
    """OffsetCommitValue 4 as Kafka's own class writes it, without and with a topic id."""
    value = bytes.fromhex("0004" + "0000000000000007" + "00000003" + "046dc3a9" + "00000000000003e8" + tags)
    assert decode_value(OffsetKey("g", "t", 0), memoryview(value)) == CommittedOffset(7, 3, "mé", 1000)


@pytest.mark.parametrize("key", ["0009" + "000167", "0001" + "0003", "0001", "", "0002" + "0001ff"])
def test_strange_keys_are_said_to_be_unknown(key: str) -> None:
    with pytest.raises(UnknownRecord):
        decode_key(memoryview(bytes.fromhex(key)))


@pytest.mark.parametrize(
    "value", ["0004", "ffff", "0003" + "00", "", "0003" + "0000000000000005" + "00000000" + "7fff"]
)
def test_strange_values_are_said_to_be_unknown(value: str) -> None:
    for key in (OffsetKey("g", "t", 0), GroupKey("g")):
        with pytest.raises(UnknownRecord):
            decode_value(key, memoryview(bytes.fromhex(value)))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for key in (OffsetKey("g", "t", 0), GroupKey("g")):
        try:
            decode_value(key, memoryview(data))
            decode_key(memoryview(data))
        except UnknownRecord:
            pass
