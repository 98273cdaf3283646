"""A small request cannot ask for gigabytes by repeated names."""

from __future__ import annotations

import pytest

from kafkawire.handlers.common.repeats import REPEATS_MAX, check_repeats
from kafkawire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkawire.tests.harness import open_handlers
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.message import Message

TOO_OFTEN = REPEATS_MAX + 2
BROKER = DescribeConfigsResource(resource_type=4, resource_name="1")
REQUESTS = [
    (DescribeGroupsRequest(groups=["g"] * TOO_OFTEN), 5),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * TOO_OFTEN), 9),
    (DescribeConfigsRequest(resources=[BROKER] * TOO_OFTEN), 4),
    (DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0] * TOO_OFTEN)]), 0),
]


def test_a_few_repetitions_are_nobodys_trouble() -> None:
    check_repeats(["a", *["b"] * (REPEATS_MAX + 1)])
    with pytest.raises(ProtocolViolation, match="11 of 13 names repeat others"):
        check_repeats(["a", *["b"] * TOO_OFTEN])


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda one: type(one).__name__)
async def test_many_end_the_connection(request_: Message, version: int) -> None:
    async with open_handlers() as broker:
        with pytest.raises(ProtocolViolation):
            await broker.ask(request_, version)


async def test_a_topic_id_that_is_named_often_is_answered_once() -> None:
    async with open_handlers() as broker:
        topics = [MetadataRequestTopic(name=None, topic_id=bytes([7] * 16))] * 1000
        reply = await broker.ask(MetadataRequest(topics=topics), 12)
    assert len(reply.topics) == 1
