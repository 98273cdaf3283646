"""The greatest timestamp of a batch whose header has a wrong one, from its records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.batches.batch import Codec, Record, parse_header
from engine.batches.timestamps import newest_of_stored, newest_timestamp_ms
from engine.errors import CorruptMessage
from testkit.logs import NOW_MS, compressed_batch
from testkit.wrong_timestamps import record_with_delta, with_max_timestamp

times = st.lists(st.integers(NOW_MS - 10_000, NOW_MS + 10_000), min_size=1, max_size=20)


@given(times, st.sampled_from(Codec), st.binary(max_size=300))
def test_the_greatest_timestamp_of_the_records_counts(timestamps_ms: list[int], codec: Codec, value: bytes) -> None:
    records = [Record(b"key", value, time, (), number) for number, time in enumerate(timestamps_ms)]
    batch = with_max_timestamp(compressed_batch(codec, records))
    header = parse_header(batch)
    assert header.has_wrong_max_timestamp
    assert newest_of_stored(batch, header) == max(timestamps_ms)


def test_a_right_header_is_believed() -> None:
    batch = compressed_batch(Codec.NONE, [Record(timestamp_ms=NOW_MS)])
    batch[61:] = bytes(len(batch) - 61)  # the records are not looked at
    assert newest_of_stored(memoryview(batch), parse_header(batch)) == NOW_MS


def test_records_that_cannot_be_decoded_have_the_base_timestamp() -> None:
    batch = compressed_batch(Codec.GZIP, [Record(timestamp_ms=NOW_MS)])
    batch[61:64] = b"bad"
    stored = with_max_timestamp(batch)
    assert newest_of_stored(stored, parse_header(stored)) == NOW_MS


@pytest.mark.parametrize("attributes", [1 << 3, 1 << 6], ids=["LogAppendTime", "delete horizon"])
def test_a_maximum_below_the_base_is_right_where_the_base_is_no_timestamp_of_a_record(attributes: int) -> None:
    header = parse_header(with_max_timestamp(compressed_batch(Codec.NONE, [Record(timestamp_ms=NOW_MS)])))
    assert header.has_wrong_max_timestamp
    assert not header._replace(attributes=attributes).has_wrong_max_timestamp
    assert not header._replace(record_count=0).has_wrong_max_timestamp


@pytest.mark.parametrize("delta_ms", [2**63 - NOW_MS, 2**63, 2**68])
def test_a_timestamp_of_more_than_64_bits_is_corrupt(delta_ms: int) -> None:
    stored = with_max_timestamp(compressed_batch(Codec.NONE, [Record(timestamp_ms=NOW_MS)]))
    header, body = parse_header(stored), record_with_delta(delta_ms)
    with pytest.raises(CorruptMessage, match="64 bits"):
        newest_timestamp_ms(header, body)
    assert newest_of_stored(memoryview(bytes(stored[:61]) + body), header) == NOW_MS


def test_wrong_sizes_are_corrupt() -> None:
    whole = compressed_batch(Codec.NONE, [Record(b"key", b"value", NOW_MS), Record(b"key", b"value", NOW_MS, (), 1)])
    header, body = parse_header(whole), bytes(whole[61:])
    for wrong in (body[:-1], body + b"\0", body[:1], b"", b"\x01" + body[1:], b"\xff" * 12, b"\x02" + body[1:]):
        with pytest.raises(CorruptMessage):
            newest_timestamp_ms(header, wrong)
