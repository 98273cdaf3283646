"""Packed rows equal, byte for byte, those of the message's encoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.groups.api import CommittedOffset
from kafkawire.handlers.common.offset_rows import encode_rows
from kafkawire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkawire.wire.plans import encoder
from kafkawire.wire.primitives import EncodeError

FIRST_VERSION, LAST_VERSION = OffsetFetchResponse.VERSIONS
FIRST_VERSION_WITH_MANY_GROUPS = 8
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
Rows = Sequence[tuple[int, CommittedOffset | None]]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.just("") | st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
committed = st.builds(CommittedOffset, int64, int32, text, int64)
rows = st.lists(st.tuples(int32, st.none() | committed), max_size=200)


def response(partitions: list[Any], version: int) -> OffsetFetchResponse:
    if version < FIRST_VERSION_WITH_MANY_GROUPS:
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)])
    topic = OffsetFetchResponseTopics(name="t", topic_id=bytes(range(16)), partitions=partitions)
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


def encoded(partitions: list[Any], version: int) -> bytes:
    return b"".join(encoder(OffsetFetchResponse, version)(response(partitions, version)))


def built(found: Rows, version: int) -> list[Any]:
    is_of_many = version >= FIRST_VERSION_WITH_MANY_GROUPS
    new = OffsetFetchResponsePartitions if is_of_many else OffsetFetchResponsePartition
    return [
        new(partition_index=partition, committed_offset=-1, metadata="")
        if one is None
        else new(
            partition_index=partition,
            committed_offset=one.offset,
            committed_leader_epoch=one.leader_epoch,
            metadata=one.metadata,
        )
        for partition, one in found
    ]


@pytest.mark.parametrize("version", VERSIONS)
@given(found=rows)
def test_packed_rows_are_the_encoders_bytes(version: int, found: Rows) -> None:
    assert encoded(encode_rows(found, version), version) == encoded(built(found, version), version)


@pytest.mark.parametrize(("text", "version"), [("\ud800", FIRST_VERSION), ("\ud800", LAST_VERSION), ("x" * 32_768, 5)])
def test_text_that_cannot_be_sent_is_refused_as_elsewhere(text: str, version: int) -> None:
    found = [(0, CommittedOffset(1, -1, text, 0))]
    for partitions in (partial(encode_rows, found), partial(built, found)):
        with pytest.raises(EncodeError):
            encoded(partitions(version), version)
