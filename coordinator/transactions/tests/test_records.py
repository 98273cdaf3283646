"""Records of the transaction log are Kafka's, byte for byte, and unknown ones are refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.state.record_fields import UnknownRecord
from coordinator.transactions.api import TransactionState
from coordinator.transactions.records import (
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

# Apache Kafka 4.3.1: TransactionLogKey and TransactionLogValue, encoded by MessageUtil.toVersionPrefixedBytes.
KEY = "000000086f72646572732d31"
VERSION_0 = (
    "0000000000000000126700070000ea60010000000200016100000002000000000000000200026262000000010000000500000174876e8001"
    "00000174876e8000"
)
VERSION_1 = (
    "0001000000000000126700070000ea60010302610300000000000000020003626202000000050000000174876e800100000174876e800000"
)
WITH_TAGS = VERSION_1[:-2] + "0400080000000000000fa0010800000000000013880202000203020000"
EMPTY_0 = "0000000000000000126700000000ea6000ffffffff00000174876e8001ffffffffffffffff"
EMPTY_1 = "0001000000000000126700000000ea60000000000174876e8001ffffffffffffffff00"

ONGOING = TransactionRecord(
    4711, 7, 60_000, TransactionState.ONGOING, (("a", (0, 2)), ("bb", (5,))), 1_600_000_000_001, 1_600_000_000_000
)
TAGGED = replace(ONGOING, previous_producer_id=4000, next_producer_id=5000, client_version=2, next_producer_epoch=0)
EMPTY = TransactionRecord(4711, 0, 60_000, TransactionState.EMPTY, (), 1_600_000_000_001)

int64s, int32s, int16s = st.integers(-1, 2**63 - 1), st.integers(0, 2**31 - 1), st.integers(-1, 2**15 - 1)
records = st.builds(
    TransactionRecord,
    int64s,
    int16s,
    int32s,
    st.sampled_from([one for one in TransactionState if one is not TransactionState.EMPTY]),
    st.lists(st.tuples(st.text(max_size=200), st.lists(int32s, max_size=5).map(tuple)), max_size=5).map(tuple),
    *[int64s] * 4,
    st.integers(0, 3),
    int16s,
)


def read(content: str) -> TransactionRecord:
    return decode_value(memoryview(bytes.fromhex(content)))


def test_keys_are_kafkas() -> None:
    assert encode_key("orders-1") == bytes.fromhex(KEY)
    assert decode_key(memoryview(bytes.fromhex(KEY))) == "orders-1"


@pytest.mark.parametrize(("record", "content"), [(ONGOING, VERSION_1), (TAGGED, WITH_TAGS), (EMPTY, EMPTY_1)])
def test_values_are_kafkas(record: TransactionRecord, content: str) -> None:
    assert encode_value(record).hex() == content
    assert read(content) == record


def test_records_of_older_brokers_are_read() -> None:
    assert read(VERSION_0) == ONGOING
    assert read(EMPTY_0) == EMPTY


def test_tags_that_are_not_known_are_passed_over() -> None:
    assert read(VERSION_1[:-2] + "01" + "09" + "02" + "cafe") == ONGOING


@given(records)
def test_a_written_record_is_read_back_unchanged(record: TransactionRecord) -> None:
    assert decode_value(memoryview(encode_value(record))) == record


@pytest.mark.parametrize(
    "content",
    [
        "0002" + VERSION_1[4:],
        "ffff" + VERSION_1[4:],
        VERSION_1[:36] + "08" + VERSION_1[38:],  # a state
        VERSION_1[:38] + "ffffffff07" + VERSION_1[40:],  # topics
        VERSION_0[:38] + "7fffffff" + VERSION_0[46:],
        VERSION_0[:38] + "80000000" + VERSION_0[46:],
        VERSION_1[:-2] + "ffffffffff01",  # tags
        VERSION_1.replace("0261", "02ff"),  # no UTF-8
    ],
)
def test_strange_values_are_said_to_be_unknown(content: str) -> None:
    with pytest.raises(UnknownRecord):
        read(content)


def test_strange_keys_are_said_to_be_unknown() -> None:
    for content in (b"", b"\0\1\0\1a", b"\0\0\0\5a"):
        with pytest.raises(UnknownRecord):
            decode_key(memoryview(content))


@given(st.sampled_from([VERSION_0, VERSION_1, WITH_TAGS, EMPTY_0, EMPTY_1]), st.data())
def test_no_damage_is_more_than_unknown(content: str, data: st.DataObject) -> None:
    whole = bytearray.fromhex(content)
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UnknownRecord):
        decode_value(memoryview(whole)[: data.draw(st.integers(0, len(whole)))])
