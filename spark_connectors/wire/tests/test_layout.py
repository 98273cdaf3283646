"""Any bytes from the network become a message or a MalformedReply, without more memory than their size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.messages.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from kafkawire.requests.headers import response_header
from spark_connectors.wire.api import Api
from spark_connectors.wire.errors import MalformedReply
from spark_connectors.wire.layout import ELEMENTS_MAX, Reader, Text, layout_of, message, write_uvarint
from spark_connectors.wire.messages.fetch import FETCH
from spark_connectors.wire.messages.metadata import METADATA
from spark_connectors.wire.tests.apis import every_api

APIS = every_api()


@message
class Empty:
    pass


@message
class Names:
    names: tuple[Text, ...]


@message
class Holes:
    holes: tuple[Empty, ...]


@given(st.integers(0, 2**32 - 1))
def test_varints_go_both_ways(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert Reader(out).uvarint() == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_that_is_none(data: bytes) -> None:
    with pytest.raises(MalformedReply):
        Reader(data).uvarint()


@given(data=st.binary(max_size=300), api=st.sampled_from(APIS))
def test_any_bytes_are_a_reply_or_malformed(data: bytes, api: Api[Any, Any]) -> None:
    try:
        api.decode(bytearray(data), 0)
    except MalformedReply:
        return


@given(st.data())
def test_a_reply_that_is_cut_off_is_malformed(data: st.DataObject) -> None:
    reply = response_header(1, 13, 5) + b"".join(some_fetch().encode(13))
    cut = data.draw(st.integers(0, len(reply) - 1))
    with pytest.raises(MalformedReply):
        FETCH.decode(reply[:cut], 5)


def some_fetch() -> FetchResponse:
    row = PartitionData(partition_index=3, records=memoryview(b"abc"), current_leader=LeaderIdAndEpoch(leader_id=1))
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[row])])


def test_tagged_fields_and_trailing_bytes_are_skipped() -> None:
    reply = response_header(1, 13, 5) + b"".join(some_fetch().encode(13)) + b"more"
    (topic,) = FETCH.decode(reply, 5).responses
    assert topic.topic_id == b"t" * 16
    assert topic.partitions[0].records == b"abc"


def test_records_are_not_copied() -> None:
    reply = bytearray(response_header(1, 13, 5) + b"".join(some_fetch().encode(13)))
    records = FETCH.decode(reply, 5).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is reply


def test_a_reply_to_another_request() -> None:
    with pytest.raises(MalformedReply, match="reply 4 to request 5"):
        METADATA.decode(response_header(3, 12, 4), 5)


def test_more_elements_than_bytes() -> None:
    with pytest.raises(MalformedReply, match="4294967294 elements announced in 0 bytes"):
        layout_of(Names).read(Reader(b"\xff\xff\xff\xff\x0f"))


def test_elements_have_a_limit_besides() -> None:
    out = bytearray()
    write_uvarint(out, ELEMENTS_MAX + 2)
    with pytest.raises(MalformedReply, match="elements announced"):
        layout_of(Holes).read(Reader(bytes(out) + bytes(ELEMENTS_MAX + 1)))


def test_a_string_that_is_no_utf8() -> None:
    with pytest.raises(MalformedReply, match="no UTF-8"):
        layout_of(Names).read(Reader(b"\x02\x02\xff\x00"))


@pytest.mark.parametrize("data", [b"\x00\x00", b"\x02\x00\x00"])
def test_null_where_there_is_none(data: bytes) -> None:
    with pytest.raises(MalformedReply, match="null"):
        layout_of(Names).read(Reader(data))
