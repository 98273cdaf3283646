"""Every handler asks before it answers: with an authorizer that denies everything each API refuses as Kafka does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from kafkawire.context import CLUSTER_NAME, Operation, ResourceType
from kafkawire.handlers import API_TABLE
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.tests.harness import batch, open_handlers

Asked = tuple[Operation, ResourceType, str]
TOPIC = ResourceType.TOPIC
CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)
DENIED = 29


@dataclass
class DenyAll:
    """Remembers what it was asked."""

    asked: set[Asked] = field(default_factory=set)

    def __call__(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        assert (principal, host) == ("User:ANONYMOUS", "10.0.0.9")
        self.asked.add((operation, resource_type, resource_name))
        return False


@dataclass(frozen=True)
class Case:
    """A request about topic `t` (or a missing one), what must be asked, and the code in the reply."""

    name: str
    request: Callable[[], Any]
    version: int
    asked: set[Asked]
    code: Callable[[Any], int]
    expected: int = DENIED


def fetch(**fields: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    return FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[partition])], max_wait_ms=0, min_bytes=0, max_bytes=1_000, **fields
    )


CASES = [
    Case(
        "produce",
        lambda: ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(batch()))])
            ],
        ),
        9,
        {(Operation.WRITE, TOPIC, "t")},
        lambda response: response.responses[0].partition_responses[0].error_code,
    ),
    Case(
        "produce",
        lambda: ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            transactional_id="x",
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[
                        PartitionProduceData(index=0, records=memoryview(batch(attributes=0x10, producer=(1, 0, 0))))
                    ],
                )
            ],
        ),
        9,
        {(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")},
        lambda response: response.responses[0].partition_responses[0].error_code,
        53,
    ),
    Case(
        "fetch",
        fetch,
        12,
        {(Operation.READ, TOPIC, "t")},
        lambda response: response.responses[0].partitions[0].error_code,
    ),
    Case(
        "fetch",
        lambda: fetch(replica_id=3),
        12,
        {(Operation.CLUSTER_ACTION, *CLUSTER)},
        lambda response: response.responses[0].partitions[0].error_code,
    ),
    Case(
        "list_offsets",
        lambda: ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
        ),
        7,
        {(Operation.DESCRIBE, TOPIC, "t")},
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    Case(
        "metadata",
        lambda: MetadataRequest(topics=[MetadataRequestTopic(name="missing")]),
        9,
        {(Operation.DESCRIBE, TOPIC, "missing")},
        lambda response: response.topics[0].error_code,
    ),
    Case(
        "metadata",
        lambda: MetadataRequest(topics=None, include_cluster_authorized_operations=True),
        9,
        {(Operation.DESCRIBE, TOPIC, "t"), (Operation.DESCRIBE, *CLUSTER)},
        lambda response: len(response.topics) or int(response.cluster_authorized_operations),
        0,
    ),
    Case(
        "create_topics",
        lambda: CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)], timeout_ms=1_000
        ),
        7,
        {(Operation.CREATE, *CLUSTER), (Operation.CREATE, TOPIC, "new")},
        lambda response: response.topics[0].error_code,
    ),
    Case(
        "delete_topics",
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000),
        6,
        {(Operation.DELETE, TOPIC, "t")},
        lambda response: response.responses[0].error_code,
    ),
    Case(
        "describe_cluster",
        lambda: DescribeClusterRequest(include_cluster_authorized_operations=True),
        1,
        {(Operation.DESCRIBE, *CLUSTER)},
        lambda response: response.cluster_authorized_operations,
        0,
    ),
    *(
        Case(
            "find_coordinator",
            partial(FindCoordinatorRequest, key_type=key_type, coordinator_keys=["k"]),
            6,
            {asked},
            lambda response: response.coordinators[0].error_code,
            expected,
        )
        for key_type, asked, expected in [
            (0, (Operation.DESCRIBE, ResourceType.GROUP, "k"), 30),
            (1, (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "k"), 53),
            (2, (Operation.CLUSTER_ACTION, *CLUSTER), 31),
        ]
    ),
    Case(
        "delete_records",
        lambda: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])]
        ),
        2,
        {(Operation.DELETE, TOPIC, "t")},
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    Case(
        "offset_for_leader_epoch",
        lambda: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)])]
        ),
        4,
        {(Operation.DESCRIBE, TOPIC, "t"), (Operation.CLUSTER_ACTION, *CLUSTER)},
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    Case(
        "init_producer_id",
        InitProducerIdRequest,
        4,
        {(Operation.IDEMPOTENT_WRITE, *CLUSTER), (Operation.WRITE, TOPIC, "t")},
        lambda response: response.error_code,
        31,
    ),
    Case(
        "init_producer_id",
        partial(InitProducerIdRequest, transactional_id="x"),
        4,
        {(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")},
        lambda response: response.error_code,
        53,
    ),
    # Asks nobody: a client learns from it how it can prove who it is.
    Case(
        "api_versions",
        lambda: ApiVersionsRequest(client_software_name="c", client_software_version="1"),
        3,
        set(),
        lambda response: response.error_code,
        0,
    ),
]


def test_no_api_is_left_out() -> None:
    assert {case.name for case in CASES} == {api.name for api in API_TABLE}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_who_may_nothing_gets_nothing(case: Case) -> None:
    async with open_handlers() as real:
        await real.create("t")
        await real.append("t", b"secret")
        authorizer = DenyAll()
        response = await real.reconfigured(authorizer=authorizer).ask(case.request(), case.version)
        assert case.asked <= authorizer.asked
        assert case.code(response) == case.expected
        assert set(real.cluster.image.topics) == {"t"}
        assert real.log("t").log_end_offset == 1
