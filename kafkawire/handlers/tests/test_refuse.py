"""Requests that fail as a whole: each API reports the error in every version, at the place where Kafka does."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkawire.handlers import API_TABLE
from kafkawire.messages import alter_configs as alter
from kafkawire.messages import alter_partition_reassignments as reassignments
from kafkawire.messages import describe_producers as producers
from kafkawire.messages import describe_topic_partitions as pages
from kafkawire.messages import incremental_alter_configs as incremental
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
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
from kafkawire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
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
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
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
from kafkawire.requests.api import Api
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import response_class
from kafkawire.tests.harness import batch
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.message import MessageStruct

ID = bytes(range(16))
PARTITIONS = (0, 7)
RECORDS = memoryview(batch())

# Each request names two items, if it can.
REQUESTS: dict[str, Any] = {
    "produce": ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name="t",
                topic_id=ID,
                partition_data=[PartitionProduceData(index=one, records=RECORDS) for one in PARTITIONS],
            )
        ],
    ),
    "fetch": FetchRequest(
        session_id=5,
        max_wait_ms=1,
        min_bytes=1,
        topics=[FetchTopic(topic="t", topic_id=ID, partitions=[FetchPartition(partition=one) for one in PARTITIONS])],
    ),
    "list_offsets": ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=one) for one in PARTITIONS])
        ]
    ),
    "metadata": MetadataRequest(topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")]),
    "offset_commit": OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=ID,
                partitions=[OffsetCommitRequestPartition(partition_index=one) for one in PARTITIONS],
            )
        ],
    ),
    "offset_fetch": OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[*PARTITIONS])],
        groups=[
            OffsetFetchRequestGroup(
                group_id=name, topics=[OffsetFetchRequestTopics(name="t", topic_id=ID, partition_indexes=[0])]
            )
            for name in ("g", "h")
        ],
    ),
    "find_coordinator": FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]),
    "join_group": JoinGroupRequest(group_id="g", member_id="m"),
    "heartbeat": HeartbeatRequest(group_id="g"),
    "leave_group": LeaveGroupRequest(group_id="g", member_id="m"),
    "sync_group": SyncGroupRequest(group_id="g"),
    "describe_groups": DescribeGroupsRequest(groups=["g", "h"]),
    "list_groups": ListGroupsRequest(),
    "api_versions": ApiVersionsRequest(client_software_name="c", client_software_version="1"),
    "create_topics": CreateTopicsRequest(topics=[CreatableTopic(name="t"), CreatableTopic(name="u")]),
    "delete_topics": DeleteTopicsRequest(
        topic_names=["t", "u"], topics=[DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=ID)]
    ),
    "delete_records": DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=one) for one in PARTITIONS])
        ]
    ),
    "init_producer_id": InitProducerIdRequest(transactional_id=None),
    "offset_for_leader_epoch": OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=one) for one in PARTITIONS])
        ]
    ),
    "describe_configs": DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in ("t", "u")]
    ),
    "alter_configs": alter.AlterConfigsRequest(
        resources=[alter.AlterConfigsResource(resource_type=2, resource_name=name) for name in ("t", "u")]
    ),
    "describe_log_dirs": DescribeLogDirsRequest(topics=None),
    "create_partitions": CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=5, assignments=None) for name in ("t", "u")]
    ),
    "delete_groups": DeleteGroupsRequest(groups_names=["g", "h"]),
    "incremental_alter_configs": incremental.IncrementalAlterConfigsRequest(
        resources=[incremental.AlterConfigsResource(resource_type=2, resource_name=name) for name in ("t", "u")]
    ),
    "offset_delete": OffsetDeleteRequest(
        group_id="g",
        topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
    ),
    "alter_partition_reassignments": reassignments.AlterPartitionReassignmentsRequest(
        topics=[
            reassignments.ReassignableTopic(
                name="t", partitions=[reassignments.ReassignablePartition(partition_index=one) for one in PARTITIONS]
            )
        ]
    ),
    "list_partition_reassignments": ListPartitionReassignmentsRequest(topics=None),
    "elect_leaders": ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[*PARTITIONS])]),
    "unregister_broker": UnregisterBrokerRequest(broker_id=1),
    "update_features": UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature=name) for name in ("f", "g")]),
    "describe_cluster": DescribeClusterRequest(),
    "describe_producers": producers.DescribeProducersRequest(
        topics=[producers.TopicRequest(name="t", partition_indexes=[*PARTITIONS])]
    ),
    "list_config_resources": ListConfigResourcesRequest(),
    "describe_topic_partitions": pages.DescribeTopicPartitionsRequest(
        topics=[pages.TopicRequest(name="t"), pages.TopicRequest(name="u")]
    ),
    "add_partitions_to_txn": AddPartitionsToTxnRequest(
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[*PARTITIONS])],
        transactions=[AddPartitionsToTxnTransaction(transactional_id=name) for name in ("x", "y")],
    ),
    "add_offsets_to_txn": AddOffsetsToTxnRequest(),
    "end_txn": EndTxnRequest(),
    "write_txn_markers": WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[*PARTITIONS])])]
    ),
    "txn_offset_commit": TxnOffsetCommitRequest(
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=one) for one in PARTITIONS]
            )
        ]
    ),
    "describe_transactions": DescribeTransactionsRequest(transactional_ids=["x", "y"]),
    "list_transactions": ListTransactionsRequest(),
    "sasl_handshake": SaslHandshakeRequest(mechanism="SCRAM-SHA-256"),
    "sasl_authenticate": SaslAuthenticateRequest(auth_bytes=b"n,,"),
}

WHOLE = ["error_code"]
# By first version: places of the code, two if two items are named.
PLACES: dict[str, dict[int, list[str]]] = {
    "produce": {3: ["responses.partition_responses.error_code"] * 2},
    "fetch": {
        4: ["responses.partitions.error_code"] * 2,
        7: [*WHOLE, *["responses.partitions.error_code"] * 2],
        13: WHOLE,
    },
    "list_offsets": {1: ["topics.partitions.error_code"] * 2},
    "metadata": {0: ["topics.error_code"] * 2, 13: ["topics.error_code", "topics.error_code", *WHOLE]},
    "offset_commit": {2: ["topics.partitions.error_code"] * 2},
    "offset_fetch": {1: ["topics.partitions.error_code"] * 2, 2: WHOLE, 8: ["groups.error_code"] * 2},
    "find_coordinator": {0: WHOLE, 4: ["coordinators.error_code"] * 2},
    "join_group": {0: WHOLE},
    "heartbeat": {0: WHOLE},
    "leave_group": {0: WHOLE},
    "sync_group": {0: WHOLE},
    "describe_groups": {0: ["groups.error_code"] * 2},
    "list_groups": {0: WHOLE},
    "api_versions": {0: WHOLE},
    "create_topics": {2: ["topics.error_code"] * 2},
    "delete_topics": {1: ["responses.error_code"] * 2},
    "delete_records": {0: ["topics.partitions.error_code"] * 2},
    "init_producer_id": {0: WHOLE},
    "offset_for_leader_epoch": {2: ["topics.partitions.error_code"] * 2},
    "describe_configs": {1: ["results.error_code"] * 2},
    "alter_configs": {0: ["responses.error_code"] * 2},
    "describe_log_dirs": {1: [], 3: WHOLE},
    "create_partitions": {0: ["results.error_code"] * 2},
    "delete_groups": {0: ["results.error_code"] * 2},
    "incremental_alter_configs": {0: ["responses.error_code"] * 2},
    "offset_delete": {0: WHOLE},
    "alter_partition_reassignments": {0: [*WHOLE, *["responses.partitions.error_code"] * 2]},
    "list_partition_reassignments": {0: WHOLE},
    "elect_leaders": {
        0: ["replica_election_results.partition_result.error_code"] * 2,
        1: [*WHOLE, *["replica_election_results.partition_result.error_code"] * 2],
    },
    "unregister_broker": {0: WHOLE},
    "update_features": {0: WHOLE},
    "describe_cluster": {0: WHOLE},
    "describe_producers": {0: ["topics.partitions.error_code"] * 2},
    "list_config_resources": {0: WHOLE},
    "describe_topic_partitions": {0: ["topics.error_code"] * 2},
    "add_partitions_to_txn": {
        0: ["results_by_topic_v3_and_below.results_by_partition.partition_error_code"] * 2,
        4: WHOLE,
    },
    "add_offsets_to_txn": {0: WHOLE},
    "end_txn": {0: WHOLE},
    "write_txn_markers": {1: ["markers.topics.partitions.error_code"] * 2},
    "txn_offset_commit": {0: ["topics.partitions.error_code"] * 2},
    "describe_transactions": {0: ["transaction_states.error_code"] * 2},
    "list_transactions": {0: WHOLE},
    "sasl_handshake": {0: WHOLE},
    "sasl_authenticate": {0: WHOLE},
}
SERVED = [(api, version) for api in API_TABLE for version in range(api.served_min, api.max_version + 1)]


def refused(api: Api, version: int) -> bytes:
    """The response's body, for the request as it came over the wire."""
    request = api.request.decode(b"".join(REQUESTS[api.name].encode(version)), version)
    context: Any = SimpleNamespace(api_version=version)
    return b"".join(api.refuse(context, request, ErrorCode.UNKNOWN_SERVER_ERROR).encode(version))


def errors(of: Any, path: str = "") -> Iterator[str]:
    """Places of error codes."""
    for name in of.__slots__:
        value = getattr(of, name)
        if name in ("error_code", "partition_error_code") and value:
            assert value == ErrorCode.UNKNOWN_SERVER_ERROR
            yield path + name
        for one in value if isinstance(value, list) else ():
            if isinstance(one, MessageStruct):
                yield from errors(one, f"{path}{name}.")


def test_no_api_is_left_out() -> None:
    assert REQUESTS.keys() == PLACES.keys() == {api.name for api in API_TABLE}


@pytest.mark.parametrize(("api", "version"), SERVED, ids=lambda one: one.name if isinstance(one, Api) else str(one))
def test_an_error_of_the_whole_request_is_where_kafka_has_it(api: Api, version: int) -> None:
    places = PLACES[api.name][max(first for first in PLACES[api.name] if first <= version)]
    response = response_class(api.key).decode(refused(api, version), version)
    assert sorted(errors(response)) == sorted(places)


def test_a_refused_produce_with_acks_0_raises_a_protocol_violation() -> None:
    context: Any = SimpleNamespace(api_version=9)
    (produce,) = (api for api in API_TABLE if api.name == "produce")
    with pytest.raises(ProtocolViolation, match="acks=0 failed: UNKNOWN_SERVER_ERROR"):
        produce.refuse(context, ProduceRequest(acks=0), ErrorCode.UNKNOWN_SERVER_ERROR)
