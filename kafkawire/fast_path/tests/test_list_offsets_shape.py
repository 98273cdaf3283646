"""Requests decoded, and replies encoded, by hand equal those of the decoder and the encoder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.api import Isolation, OffsetAtTimestamp, OffsetSpec
from kafkawire.fast_path.list_offsets_shape import RequestShape
from kafkawire.fast_path.prefix_cache import SIZE_MAX_BYTES
from kafkawire.handlers.list_offsets import respond
from kafkawire.messages.list_offsets import API_KEY, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.requests.headers import CLIENT_ID_AT, encode_request, response_header

VERSIONS = range(1, 12)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
ENDS = st.sampled_from([OffsetSpec.LATEST, OffsetSpec.EARLIEST])


def partitions(timestamps: st.SearchStrategy[int]) -> st.SearchStrategy[list[ListOffsetsPartition]]:
    one = st.builds(
        ListOffsetsPartition,
        partition_index=st.integers(0, 9) | INT32,
        current_leader_epoch=st.sampled_from([-1, 0]) | INT32,
        timestamp=timestamps,
    )
    return st.lists(one, max_size=4)


def requests(timestamps: st.SearchStrategy[int]) -> st.SearchStrategy[ListOffsetsRequest]:
    name = st.sampled_from(["events", "größer"]) | st.text(max_size=20)
    topic = st.builds(ListOffsetsTopic, name=name, partitions=partitions(timestamps))
    return st.builds(
        ListOffsetsRequest,
        replica_id=INT32,
        isolation_level=st.integers(-1, 2),
        topics=st.lists(topic, max_size=3),
        timeout_ms=INT32,
    )


def asked_for(request: ListOffsetsRequest) -> list[tuple[str, int]]:
    return [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]


def is_of_this_shape(request: ListOffsetsRequest, frame: bytearray) -> bool:
    asked = asked_for(request)
    ends = all(one.timestamp in (-1, -2) for topic in request.topics for one in topic.partitions)
    behind_it = not request.topics or not request.topics[-1].partitions  # the last field is no partition
    is_small = len(frame) <= CLIENT_ID_AT + SIZE_MAX_BYTES
    return ends and bool(asked) and len(set(asked)) == len(asked) and not behind_it and is_small


def known(request: ListOffsetsRequest, version: int) -> ListOffsetsRequest:
    """The request without fields that the version lacks."""
    for topic in request.topics:
        for one in topic.partitions:
            one.current_leader_epoch = one.current_leader_epoch if version >= 4 else -1
    request.isolation_level = request.isolation_level if version >= 2 else 0
    request.timeout_ms = request.timeout_ms if version >= 10 else 0
    return request


@given(
    requests(ENDS) | requests(ENDS | INT64),
    st.sampled_from(VERSIONS),
    st.none() | st.text(max_size=30) | st.just("x" * 600),
    st.data(),
)
def test_the_fast_path_shape_reads_requests_and_writes_replies_as_the_codec_does(
    request: ListOffsetsRequest, version: int, client_id: str | None, data: st.DataObject
) -> None:
    request = known(request, version)
    frame = bytearray(encode_request(request, version, data.draw(INT32), client_id))
    shape = RequestShape(version)
    asked = shape.read(frame)
    assert (asked is not None) == is_of_this_shape(request, frame)
    if asked is None:
        return
    assert shape.read(frame) is asked, "it is learned"
    rows = [(topic.name, one) for topic in request.topics for one in topic.partitions]
    expected = [(name, one.partition_index, one.current_leader_epoch, one.timestamp) for name, one in rows]
    assert [one[:4] for one in asked.partitions] == expected
    assert asked.topics == list(dict.fromkeys(topic.name for topic in request.topics))
    assert asked.isolation == (Isolation.READ_COMMITTED if request.isolation_level == 1 else 0)
    found = [OffsetAtTimestamp(data.draw(INT64), -1, data.draw(INT32)) for _ in asked.partitions]
    response = respond(request, dict(zip(asked_for(request), found, strict=True)))
    number = int.from_bytes(frame[4:8], "big", signed=True)
    encoded = b"".join([response_header(API_KEY, version, number), *response.encode(version)])
    assert asked.reply(frame[4:8], found) == encoded
