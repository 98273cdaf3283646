"""The served APIs: here a table with a row for each API, beside it a module for each, named as its message module.

A module has `handle`, which answers a request, and `refuse`, which makes a response with an error of the whole request.
The table alone decides what is served: dispatch, ApiVersions and docs/protocol.md read it. The versions are those that
Apache Kafka 4.3.1 calls stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkawire.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkawire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkawire.messages.alter_configs import AlterConfigsRequest
from kafkawire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkawire.messages.api_versions import ApiVersionsRequest
from kafkawire.messages.create_partitions import CreatePartitionsRequest
from kafkawire.messages.create_topics import CreateTopicsRequest
from kafkawire.messages.delete_groups import DeleteGroupsRequest
from kafkawire.messages.delete_records import DeleteRecordsRequest
from kafkawire.messages.delete_topics import DeleteTopicsRequest
from kafkawire.messages.describe_cluster import DescribeClusterRequest
from kafkawire.messages.describe_configs import DescribeConfigsRequest
from kafkawire.messages.describe_groups import DescribeGroupsRequest
from kafkawire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafkawire.messages.describe_producers import DescribeProducersRequest
from kafkawire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkawire.messages.describe_transactions import DescribeTransactionsRequest
from kafkawire.messages.elect_leaders import ElectLeadersRequest
from kafkawire.messages.end_txn import EndTxnRequest
from kafkawire.messages.fetch import FetchRequest
from kafkawire.messages.find_coordinator import FindCoordinatorRequest
from kafkawire.messages.heartbeat import HeartbeatRequest
from kafkawire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkawire.messages.init_producer_id import InitProducerIdRequest
from kafkawire.messages.join_group import JoinGroupRequest
from kafkawire.messages.leave_group import LeaveGroupRequest
from kafkawire.messages.list_config_resources import ListConfigResourcesRequest
from kafkawire.messages.list_groups import ListGroupsRequest
from kafkawire.messages.list_offsets import ListOffsetsRequest
from kafkawire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkawire.messages.list_transactions import ListTransactionsRequest
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.messages.offset_delete import OffsetDeleteRequest
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkawire.messages.sasl_handshake import SaslHandshakeRequest
from kafkawire.messages.sync_group import SyncGroupRequest
from kafkawire.messages.txn_offset_commit import TxnOffsetCommitRequest
from kafkawire.messages.unregister_broker import UnregisterBrokerRequest
from kafkawire.messages.update_features import UpdateFeaturesRequest
from kafkawire.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkawire.requests.api import Api, Handler

if TYPE_CHECKING:
    from kafkawire.wire.message import Message


def _api(module: Handler, request: type[Message], min_version: int, max_version: int, **others: Any) -> Api:
    name = module.__name__.rpartition(".")[2]
    return Api(name, request, module.handle, module.refuse, min_version, max_version, **others)


API_TABLE: tuple[Api, ...] = (
    # Advertised from 0: otherwise librdkafka would silently send without compression (KAFKA-18659).
    _api(produce, ProduceRequest, 0, 13, first_served=3, two_stage=True, holds_frame=True, needs_room=True),
    _api(fetch, FetchRequest, 4, 18),
    _api(list_offsets, ListOffsetsRequest, 1, 11),
    _api(metadata, MetadataRequest, 0, 13),
    _api(offset_commit, OffsetCommitRequest, 2, 10, two_stage=True),
    _api(offset_fetch, OffsetFetchRequest, 1, 10, two_stage=True),
    _api(find_coordinator, FindCoordinatorRequest, 0, 6),
    _api(join_group, JoinGroupRequest, 0, 9, two_stage=True),
    _api(heartbeat, HeartbeatRequest, 0, 4, two_stage=True),
    _api(leave_group, LeaveGroupRequest, 0, 5, two_stage=True),
    _api(sync_group, SyncGroupRequest, 0, 5, two_stage=True),
    _api(describe_groups, DescribeGroupsRequest, 0, 6, two_stage=True),
    _api(list_groups, ListGroupsRequest, 0, 5, two_stage=True),
    _api(sasl_handshake, SaslHandshakeRequest, 0, 1),
    _api(api_versions, ApiVersionsRequest, 0, 4, refuse_version=api_versions.refuse_version),
    _api(create_topics, CreateTopicsRequest, 2, 7),
    _api(delete_topics, DeleteTopicsRequest, 1, 6),
    _api(delete_records, DeleteRecordsRequest, 0, 2),
    _api(init_producer_id, InitProducerIdRequest, 0, 5),
    _api(offset_for_leader_epoch, OffsetForLeaderEpochRequest, 2, 4),
    _api(add_partitions_to_txn, AddPartitionsToTxnRequest, 0, 5, two_stage=True),
    _api(add_offsets_to_txn, AddOffsetsToTxnRequest, 0, 4, two_stage=True),
    _api(end_txn, EndTxnRequest, 0, 5, two_stage=True),
    _api(write_txn_markers, WriteTxnMarkersRequest, 1, 2, two_stage=True),
    _api(txn_offset_commit, TxnOffsetCommitRequest, 0, 5, two_stage=True),
    _api(describe_configs, DescribeConfigsRequest, 1, 4),
    _api(alter_configs, AlterConfigsRequest, 0, 2),
    _api(describe_log_dirs, DescribeLogDirsRequest, 1, 5),
    _api(sasl_authenticate, SaslAuthenticateRequest, 0, 2),
    _api(create_partitions, CreatePartitionsRequest, 0, 3),
    _api(delete_groups, DeleteGroupsRequest, 0, 2, two_stage=True),
    _api(elect_leaders, ElectLeadersRequest, 0, 2),
    _api(incremental_alter_configs, IncrementalAlterConfigsRequest, 0, 1),
    _api(alter_partition_reassignments, AlterPartitionReassignmentsRequest, 0, 1),
    _api(list_partition_reassignments, ListPartitionReassignmentsRequest, 0, 0),
    _api(offset_delete, OffsetDeleteRequest, 0, 0, two_stage=True),
    _api(update_features, UpdateFeaturesRequest, 0, 2),
    _api(describe_cluster, DescribeClusterRequest, 0, 2),
    _api(describe_producers, DescribeProducersRequest, 0, 0),
    _api(unregister_broker, UnregisterBrokerRequest, 0, 0),
    _api(describe_transactions, DescribeTransactionsRequest, 0, 0, two_stage=True),
    _api(list_transactions, ListTransactionsRequest, 0, 2, two_stage=True),
    _api(list_config_resources, ListConfigResourcesRequest, 0, 1),
    _api(describe_topic_partitions, DescribeTopicPartitionsRequest, 0, 0),
)
