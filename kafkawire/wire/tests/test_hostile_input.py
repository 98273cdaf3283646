"""Effects of a stranger's bytes on the decoder: only DecodeError, and memory proportional to their number."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkawire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkawire.requests.headers import decode_request_header, decode_response, encode_request, response_header
from kafkawire.wire.message import ELEMENT_CAP
from kafkawire.wire.primitives import (
    STRING_SIZE_MAX,
    UVARINT_MAX,
    DecodeError,
    EncodeError,
    TooManyElements,
    read_uvarint,
    uvarint,
)

LEGACY, FLEXIBLE = 8, 12  # versions of Metadata


@pytest.mark.parametrize(
    ("version", "body"),
    [
        pytest.param(LEGACY, struct.pack(">i", -2) + bytes(3), id="array count below -1"),
        pytest.param(LEGACY, struct.pack(">ih", 1, -2) + bytes(3), id="string length below -1"),
        pytest.param(LEGACY, struct.pack(">ih", 1, -1) + bytes(3), id="null where null is not allowed"),
        pytest.param(LEGACY, struct.pack(">i", 2**31 - 1) + bytes(3), id="count beyond what remains"),
        pytest.param(LEGACY, struct.pack(">ih", 1, 100) + b"abc", id="string beyond what remains"),
        pytest.param(LEGACY, struct.pack(">ih", 1, 2) + b"\xff\xfe" + bytes(3), id="bad UTF-8"),
        pytest.param(LEGACY, struct.pack(">ih", 1, 3) + b"\xed\xa0\x80" + bytes(3), id="a surrogate"),
        pytest.param(FLEXIBLE, b"\xff\xff\xff\xff\x0f" + bytes(3), id="the bytes that abort kio's reader"),
        pytest.param(FLEXIBLE, b"\x80\x80\x80\x80\x80\x01" + bytes(3), id="a varint of six bytes"),
        pytest.param(FLEXIBLE, b"\xff\xff\xff\xff\x1f" + bytes(3), id="a varint over 32 bits"),
        pytest.param(
            FLEXIBLE, b"\x02" + bytes(16) + b"\x80\x01abc" + bytes(4), id="compact string beyond what remains"
        ),
        pytest.param(
            FLEXIBLE,
            b"\x02" + bytes(16) + uvarint(STRING_SIZE_MAX + 2) + bytes(STRING_SIZE_MAX + 1) + bytes(4),
            id="a compact string longer than a legacy one can be",
        ),
        pytest.param(FLEXIBLE, b"\x01\x00\x00\x01\x00\x7f", id="a tag that ends behind the message"),
        pytest.param(FLEXIBLE, b"\x01\x00\x00\xff\xff\x03", id="more tags than bytes"),
    ],
)
def test_refused(version: int, body: bytes) -> None:
    with pytest.raises(DecodeError):
        MetadataRequest.decode(body, version)


@pytest.mark.parametrize(
    ("version", "body", "reason"),
    [
        pytest.param(1, struct.pack(">i", -2) + b"abc", "negative", id="length below -1"),
        pytest.param(1, struct.pack(">i", -1) + b"abc", "null", id="null where null is not allowed"),
        pytest.param(1, struct.pack(">i", 4) + b"abc", "longer", id="length beyond what remains"),
        pytest.param(2, b"\x00abc\x00", "null", id="compact null where null is not allowed"),
        pytest.param(2, b"\x06abc\x00", "longer", id="compact length beyond what remains"),
        pytest.param(2, b"\xff\xff\xff\xff\x0fabc\x00", "longer", id="compact length of 4 GiB"),
    ],
)
def test_bytes_refused(version: int, body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        SaslAuthenticateRequest.decode(body, version)


@pytest.mark.parametrize(
    ("version", "records", "reason"),
    [
        pytest.param(8, struct.pack(">i", -2) + b"abc", "negative", id="length below -1"),
        pytest.param(8, struct.pack(">i", 4) + b"abc", "longer", id="length beyond what remains"),
        pytest.param(9, b"\x08abc" + bytes(3), "longer", id="compact length beyond what remains"),
    ],
)
def test_records_refused(version: int, records: bytes, reason: str) -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=None)])
    frame = ProduceRequest(topic_data=[topic]).encode(version)[0]
    null = (
        b"\xff\xff\xff\xff" if version == 8 else bytes(4)
    )  # the last one: a byte for null, three for no tagged fields
    assert ProduceRequest.decode(frame, version).topic_data == [topic]
    assert frame.endswith(null)
    with pytest.raises(DecodeError, match=reason):
        ProduceRequest.decode(frame.removesuffix(null) + records, version)


@pytest.mark.parametrize(
    ("version", "rest", "none", "one", "many"),
    [
        pytest.param(7, bytes(8), bytes(4), b"\0\0\0\x01\0\x01t", struct.pack(">i", 50_000), id="legacy"),
        pytest.param(12, b"\x01\x01\x01\0", b"\x01", b"\x02\x02t", uvarint(50_001), id="compact"),
    ],
)
def test_a_count_below_the_cap_is_held_against_the_bytes_that_remain(
    version: int, rest: bytes, none: bytes, one: bytes, many: bytes
) -> None:
    """Structs of many sizes, structs of one size and numbers are read in three ways.

    Each way checks the count first.
    """
    empty = bytes(FetchRequest().encode(version)[0])
    assert empty.endswith(rest)  # topics, forgotten topics, ...
    for counts in (many, one + many, none + many, none + one + many):
        with pytest.raises(DecodeError, match="too many") as caught:
            FetchRequest.decode(empty.removesuffix(rest) + counts + bytes(100), version)
        assert not isinstance(caught.value, TooManyElements), "it is no message with a higher cap either"


def test_null_array_where_null_is_not_allowed_is_refused() -> None:
    for version, null in ((1, struct.pack(">i", -1)), (2, b"\x00")):
        with pytest.raises(DecodeError, match="null"):
            DeleteGroupsRequest.decode(null + bytes(3), version)


def test_bytes_behind_a_body_are_ignored() -> None:
    """librdkafka 2.16.0 asks for all topics like this: the null array is four bytes long, so three are left over."""
    sent = bytes.fromhex("00000000010000")
    assert MetadataRequest.decode(sent, 13) == MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert MetadataRequest.decode(struct.pack(">i", 0) + bytes(103), LEGACY).topics == []


def test_known_tag_of_another_size_is_refused() -> None:
    request = FetchRequest(cluster_id="c").encode(FLEXIBLE)[0]
    assert FetchRequest.decode(bytes(request), FLEXIBLE).cluster_id == "c"
    longer = bytes(request).replace(b"\x00\x02\x02c", b"\x00\x03\x02cc")
    with pytest.raises(DecodeError, match="another size than it says"):
        FetchRequest.decode(longer, FLEXIBLE)


def test_unknown_tagged_field_is_skipped() -> None:
    plain = bytes(MetadataRequest(topics=None).encode(FLEXIBLE)[0])
    assert plain.endswith(b"\0")
    tagged = plain[:-1] + b"\x01" + uvarint(200) + b"\x03abc"
    assert MetadataRequest.decode(tagged, FLEXIBLE) == MetadataRequest.decode(plain, FLEXIBLE)


def test_tagged_field_in_the_midst_of_elements_of_one_size() -> None:
    """Elements of fixed fields only are read at once; a tagged field in one of them changes none."""
    rows = [FetchPartition(partition=index, fetch_offset=100 + index) for index in range(5)]
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=rows)])
    plain = bytes(request.encode(FLEXIBLE)[0])
    third = struct.pack(">iiq", 2, -1, 102)
    at = plain.index(third) + struct.calcsize(">iiqiqi")
    tagged = plain[:at] + b"\x01" + uvarint(200) + b"\x03abc" + plain[at + 1 :]
    assert FetchRequest.decode(tagged, FLEXIBLE) == FetchRequest.decode(plain, FLEXIBLE) == request
    with pytest.raises(DecodeError):
        FetchRequest.decode(plain[:at] + b"\x7f" + plain[at + 1 :], FLEXIBLE)


def test_varints_longer_than_needed_are_read_as_java_does() -> None:
    assert MetadataRequest.decode(b"\x81\x80\x00" + bytes(3), FLEXIBLE).topics == []


def test_any_byte_but_zero_is_true() -> None:
    assert MetadataRequest.decode(b"\x01\x02\x00\x00", FLEXIBLE).allow_auto_topic_creation is True


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(uvarint(1_000_001) + bytes(3_000_000), id="a million tiny elements"),
        pytest.param(b"\x01\x01\x00" + uvarint(1_000_000) + b"\x7f\x00" * 1_000_000, id="a million tagged fields"),
    ],
)
def test_elements_and_tags_are_capped(body: bytes) -> None:
    MetadataRequest.decode(b"\x01" + bytes(3), FLEXIBLE)  # the compilation of its plan is not measured
    assert peak_bytes(lambda: MetadataRequest.decode(body, FLEXIBLE)) < 64 * 1024


def test_the_cap_counts_nested_arrays_together() -> None:
    inner = uvarint(ELEMENT_CAP // 10 + 1)
    partition = struct.pack(">iqi", 0, 0, -1) + b"\x00\x00"
    one_topic = uvarint(2) + b"t" + inner + partition * (ELEMENT_CAP // 10) + b"\0"
    body = b"\x02g" + struct.pack(">i", 0) + b"\x02m\x00" + uvarint(12) + one_topic * 11 + b"\0"
    with pytest.raises(TooManyElements, match="too many"):
        OffsetCommitRequest.decode(body, 8)


def test_a_list_may_be_longer_when_we_have_asked_for_it() -> None:
    response = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")] * (ELEMENT_CAP + 1))
    frame = response_header(response.API_KEY, 2, 1) + b"".join(response.encode(2))
    assert decode_response(frame, response.API_KEY, 2) == (1, response)
    with pytest.raises(TooManyElements, match="too many"):
        DeleteGroupsResponse.decode(frame, 2, 5)


def test_records_are_views_of_the_frame() -> None:
    records = memoryview(b"r" * 1000)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    frame = bytearray(encode_request(ProduceRequest(topic_data=[topic]), 9, 1, "me"))
    _, start = decode_request_header(frame)
    decoded = ProduceRequest.decode(frame, 9, start).topic_data[0].partition_data[0].records
    assert decoded is not None
    assert decoded.obj is frame
    assert decoded == records


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(struct.pack(">hhi", 3, 12, 1), id="no client id"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, 5) + b"ab", id="client id cut off"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -2), id="negative client id"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, 2) + b"\xff\xfe\x00", id="client id not UTF-8"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1), id="no tag count"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\x0f", id="tags beyond the request"),
        pytest.param(struct.pack(">hhih", 3, 12, 1, -1) + b"\x01\x00\x7f", id="tag beyond the request"),
        pytest.param(struct.pack(">hhih", 999, 0, 1, -1), id="unknown API key"),
        pytest.param(struct.pack(">hhih", 3, 99, 1, -1), id="unknown version"),
    ],
)
def test_bad_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(frame)


def test_field_value_that_a_version_cannot_carry_raises_encode_error() -> None:
    with pytest.raises(EncodeError):
        FetchRequest(max_wait_ms=2**31).encode(FLEXIBLE)
    with pytest.raises(EncodeError):
        FetchRequest(rack_id="x" * 40_000).encode(11)
    with pytest.raises(EncodeError):
        MetadataRequest(topics=None).encode(0)


@given(st.integers(min_value=0, max_value=UVARINT_MAX))
def test_varint_round_trip(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(encoded, 0) == (value, len(encoded))


@given(st.binary(max_size=12))
def test_varint_of_any_bytes(data: bytes) -> None:
    try:
        value, offset = read_uvarint(data, 0)
    except (DecodeError, IndexError):
        return
    assert 0 <= value <= UVARINT_MAX
    assert 1 <= offset <= 5
