"""Authorization in every handler: with an authorizer that denies everything each API refuses like Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from coordinator.groups.api import GroupListing, GroupState
from coordinator.transactions.api import TransactionListing, TransactionState
from kafkawire.handlers import API_TABLE
from kafkawire.messages import alter_configs, describe_producers, describe_topic_partitions, incremental_alter_configs
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkawire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkawire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkawire.messages.delete_groups import DeleteGroupsRequest
from kafkawire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkawire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkawire.messages.describe_transactions import DescribeTransactionsRequest
from kafkawire.messages.elect_leaders import ElectLeadersRequest
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.join_group import JoinGroupRequest
from kafkawire.messages.leave_group import LeaveGroupRequest
from kafkawire.messages.list_config_resources import ListConfigResourcesRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkawire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkawire.messages.list_transactions import ListTransactionsRequest
from kafkawire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkawire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkawire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkawire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkawire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkawire.messages.sasl_handshake import SaslHandshakeRequest
from kafkawire.messages.sync_group import SyncGroupRequest
from kafkawire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkawire.messages.unregister_broker import UnregisterBrokerRequest
from kafkawire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kafkawire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkawire.requests.context import CLUSTER_NAME, Operation, ResourceType
from kafkawire.tests.harness import batch, open_handlers

Asked = tuple[Operation, ResourceType, str]
TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)
DENIED = 29
BROKER_LOGGERS = 8


@dataclass
class DenyAll:
    """An authorizer that denies everything and records its questions."""

    asked: set[Asked] = field(default_factory=set)

    def __call__(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        assert (principal, host) == ("User:ANONYMOUS", "10.0.0.9")
        self.asked.add((operation, resource_type, resource_name))
        return False


@dataclass(frozen=True)
class Case:
    """A request about topic `t` (or a missing one), the expected questions, and the error code in the reply."""

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


def of_reply(response: Any) -> int:
    return int(response.error_code)


OFFSET = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])
# A resource: its type and name, the needed right, and the code without it.
CONFIGS_OF: list[tuple[int, str, tuple[ResourceType, str], int]] = [
    (2, "t", (TOPIC, "t"), DENIED),
    (4, "1", CLUSTER, 31),
    (4, "", CLUSTER, 31),
    (8, "1", CLUSTER, 31),
    (16, "m", CLUSTER, 31),
    (32, "g", (GROUP, "g"), 30),
]
# API, request, version, the needed right, and the place of the code.
ABOUT_A_TRANSACTION: list[tuple[str, Callable[[], Any], int, Operation, Callable[[Any], int]]] = [
    (
        "add_partitions_to_txn",
        partial(
            AddPartitionsToTxnRequest,
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
        Operation.WRITE,
        lambda response: response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
    (
        "add_offsets_to_txn",
        partial(AddOffsetsToTxnRequest, transactional_id="x", group_id="g"),
        4,
        Operation.WRITE,
        of_reply,
    ),
    ("end_txn", partial(EndTxnRequest, transactional_id="x"), 4, Operation.WRITE, of_reply),
    (
        "txn_offset_commit",
        partial(
            TxnOffsetCommitRequest,
            transactional_id="x",
            group_id="g",
            topics=[
                TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)])
            ],
        ),
        4,
        Operation.WRITE,
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    (
        "describe_transactions",
        partial(DescribeTransactionsRequest, transactional_ids=["x"]),
        0,
        Operation.DESCRIBE,
        lambda response: response.transaction_states[0].error_code,
    ),
]
ABOUT_A_GROUP: list[tuple[str, Callable[[], Any], int, Operation, Callable[[Any], int]]] = [
    ("join_group", partial(JoinGroupRequest, group_id="g"), 9, Operation.READ, of_reply),
    (
        "sync_group",
        partial(SyncGroupRequest, group_id="g", protocol_type="consumer", protocol_name="range"),
        5,
        Operation.READ,
        of_reply,
    ),
    ("heartbeat", partial(HeartbeatRequest, group_id="g"), 4, Operation.READ, of_reply),
    ("leave_group", partial(LeaveGroupRequest, group_id="g"), 5, Operation.READ, of_reply),
    (
        "offset_commit",
        partial(OffsetCommitRequest, group_id="g", topics=[OFFSET]),
        9,
        Operation.READ,
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    (
        "offset_fetch",
        partial(OffsetFetchRequest, groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        9,
        Operation.DESCRIBE,
        lambda response: response.groups[0].error_code,
    ),
    (
        "describe_groups",
        partial(DescribeGroupsRequest, groups=["g"], include_authorized_operations=True),
        6,
        Operation.DESCRIBE,
        lambda response: response.groups[0].error_code,
    ),
    (
        "delete_groups",
        partial(DeleteGroupsRequest, groups_names=["g"]),
        2,
        Operation.DELETE,
        lambda response: response.results[0].error_code,
    ),
    ("offset_delete", partial(OffsetDeleteRequest, group_id="g"), 0, Operation.DELETE, of_reply),
]
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
        {(Operation.WRITE, TRANSACTIONAL_ID, "x")},
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
    # A client that names a broker id without authentication is refused, whatever its rights.
    *(
        Case(
            "fetch", partial(fetch, **claim), version, set(), lambda reply: reply.responses[0].partitions[0].error_code
        )
        for version, claim in ((12, {"replica_id": 3}), (18, {"replica_state": ReplicaState(replica_id=3)}))
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
    *(
        Case(name, request, 0, {(operation, *CLUSTER)}, of_reply, 31)
        for name, request, operation in (
            ("alter_partition_reassignments", AlterPartitionReassignmentsRequest, Operation.ALTER),
            ("list_partition_reassignments", ListPartitionReassignmentsRequest, Operation.DESCRIBE),
            ("unregister_broker", UnregisterBrokerRequest, Operation.ALTER),
        )
    ),
    Case("elect_leaders", ElectLeadersRequest, 1, {(Operation.ALTER, *CLUSTER)}, of_reply, 31),
    Case(
        "update_features",
        lambda: UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="f", max_version_level=1)]),
        1,
        {(Operation.ALTER, *CLUSTER)},
        of_reply,
        31,
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
            (0, (Operation.DESCRIBE, GROUP, "k"), 30),
            (1, (Operation.DESCRIBE, TRANSACTIONAL_ID, "k"), 53),
            (2, (Operation.CLUSTER_ACTION, *CLUSTER), 31),
        ]
    ),
    *(
        Case(name, request, version, {(operation, GROUP, "g")}, code, 30)
        for name, request, version, operation, code in ABOUT_A_GROUP
    ),
    *(
        Case(name, request, version, {(operation, TRANSACTIONAL_ID, "x")}, code, 53)
        for name, request, version, operation, code in ABOUT_A_TRANSACTION
    ),
    Case(
        "list_transactions",
        ListTransactionsRequest,
        2,
        {(Operation.DESCRIBE, TRANSACTIONAL_ID, "x")},
        lambda response: len(response.transaction_states),
        0,
    ),
    Case(
        "add_partitions_to_txn",
        lambda: AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(transactional_id="x")]),
        5,
        {(Operation.CLUSTER_ACTION, *CLUSTER)},
        of_reply,
        31,
    ),
    Case(
        "write_txn_markers",
        lambda: WriteTxnMarkersRequest(
            markers=[WritableTxnMarker(topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])])]
        ),
        1,
        {(Operation.ALTER, *CLUSTER), (Operation.CLUSTER_ACTION, *CLUSTER)},
        lambda response: response.markers[0].topics[0].partitions[0].error_code,
        31,
    ),
    Case(
        "list_groups",
        ListGroupsRequest,
        5,
        {(Operation.DESCRIBE, *CLUSTER), (Operation.DESCRIBE, GROUP, "g")},
        lambda response: len(response.groups),
        0,
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
        {(Operation.WRITE, TRANSACTIONAL_ID, "x")},
        lambda response: response.error_code,
        53,
    ),
    Case(
        "create_partitions",
        lambda: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5)], timeout_ms=1_000),
        3,
        {(Operation.ALTER, TOPIC, "t")},
        lambda response: response.results[0].error_code,
    ),
    *(
        Case(
            "describe_configs",
            partial(
                DescribeConfigsRequest,
                resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
            ),
            4,
            {(Operation.DESCRIBE_CONFIGS, *asked)},
            lambda response: response.results[0].error_code,
            code,
        )
        for kind, name, asked, code in CONFIGS_OF
    ),
    *(
        Case(
            "incremental_alter_configs",
            partial(
                incremental_alter_configs.IncrementalAlterConfigsRequest,
                resources=[incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)],
            ),
            1,
            {(Operation.ALTER_CONFIGS, *asked)},
            lambda response: response.responses[0].error_code,
            code,
        )
        for kind, name, asked, code in CONFIGS_OF
    ),
    *(
        Case(
            "alter_configs",
            partial(
                alter_configs.AlterConfigsRequest,
                resources=[alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name)],
            ),
            2,
            {(Operation.ALTER_CONFIGS, *asked)},
            lambda response: response.responses[0].error_code,
            code,
        )
        for kind, name, asked, code in CONFIGS_OF
        if kind != BROKER_LOGGERS
    ),
    Case(
        "list_config_resources",
        ListConfigResourcesRequest,
        1,
        {(Operation.DESCRIBE_CONFIGS, *CLUSTER)},
        lambda response: response.error_code,
        31,
    ),
    Case(
        "describe_log_dirs",
        lambda: DescribeLogDirsRequest(topics=None),
        5,
        {(Operation.DESCRIBE, *CLUSTER)},
        lambda response: response.error_code + len(response.results),
        31,
    ),
    Case(
        "describe_producers",
        lambda: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0])]
        ),
        0,
        {(Operation.READ, TOPIC, "t")},
        lambda response: response.topics[0].partitions[0].error_code,
    ),
    Case(
        "describe_topic_partitions",
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="t")]
        ),
        0,
        {(Operation.DESCRIBE, TOPIC, "t")},
        lambda response: response.topics[0].error_code,
    ),
    Case(
        "describe_topic_partitions",
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[]),
        0,
        {(Operation.DESCRIBE, TOPIC, "t")},
        lambda response: len(response.topics),
        0,
    ),
    # No authorization: they determine the principal.
    Case("sasl_handshake", lambda: SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1, set(), of_reply, 34),
    Case("sasl_authenticate", lambda: SaslAuthenticateRequest(auth_bytes=b"n,,n=x,r=y"), 2, set(), of_reply, 34),
    # No authorization: a client learns from it how to authenticate.
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
async def test_a_principal_without_rights_gets_errors_and_changes_nothing(case: Case) -> None:
    async with open_handlers() as real:
        await real.create("t")
        await real.append("t", b"secret")
        real.groups.answers["list_groups"] = [GroupListing("g", "consumer", GroupState.STABLE)]
        real.transactions.answers["list_transactions"] = [TransactionListing("x", 7, TransactionState.ONGOING, 1)]
        authorizer = DenyAll()
        response = await real.reconfigured(authorizer=authorizer).ask(case.request(), case.version)
        assert case.asked <= authorizer.asked
        assert case.code(response) == case.expected
        assert {name: len(topic.partitions) for name, topic in real.cluster.image.topics.items()} == {"t": 1}
        assert real.log("t").log_end_offset == 1
        assert {call[0] for call in real.groups.calls} <= {"list_groups"}
        assert {call[0] for call in real.transactions.calls} <= {"list_transactions"}
        assert real.markers.written == []


@dataclass
class DenyTopics(DenyAll):
    def __call__(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, resource_name: str
    ) -> bool:
        super().__call__(principal, host, operation, resource_type, resource_name)
        return resource_type is not TOPIC


@pytest.mark.parametrize(
    ("request_", "version", "operation", "row"),
    [
        (OffsetCommitRequest(group_id="g", topics=[OFFSET]), 9, Operation.READ, lambda reply: reply.topics[0]),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
                    )
                ]
            ),
            9,
            Operation.DESCRIBE,
            lambda reply: reply.groups[0].topics[0],
        ),
        (
            OffsetDeleteRequest(
                group_id="g",
                topics=[
                    OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
                ],
            ),
            0,
            Operation.READ,
            lambda reply: reply.topics[0],
        ),
    ],
)
async def test_the_right_to_a_group_is_none_to_topics(
    request_: Any, version: int, operation: Operation, row: Callable[[Any], Any]
) -> None:
    async with open_handlers() as real:
        await real.create("t")
        real.groups.answers.update(fetch_offsets=[], fetch_all_offsets=[], delete_offsets=[])
        authorizer = DenyTopics()
        response = await real.reconfigured(authorizer=authorizer).ask(request_, version)
        assert (operation, TOPIC, "t") in authorizer.asked
        assert [one.error_code for one in row(response).partitions] == [DENIED]
        assert all(partitions == [] for _, _, partitions in real.groups.calls)
