"""The APIs this broker serves: one row here and one module beside it per API, named as its message module.

The table is the only truth about what is served: dispatch, ApiVersions and docs/protocol.md read it. Versions are
those that Apache Kafka 4.3.1 calls stable.
"""

from __future__ import annotations

from kafkawire.handlers import (
    alter_configs,
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
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from kafkawire.messages.alter_configs import AlterConfigsRequest
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
from kafkawire.messages.metadata import MetadataRequest
from kafkawire.messages.offset_commit import OffsetCommitRequest
from kafkawire.messages.offset_delete import OffsetDeleteRequest
from kafkawire.messages.offset_fetch import OffsetFetchRequest
from kafkawire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkawire.messages.produce import ProduceRequest
from kafkawire.messages.sync_group import SyncGroupRequest
from kafkawire.requests.api import Api

API_TABLE: tuple[Api, ...] = (
    # Advertised from 0: librdkafka would otherwise send uncompressed without a word (KAFKA-18659).
    Api(
        "produce",
        ProduceRequest,
        produce.handle,
        0,
        13,
        first_served=3,
        two_stage=True,
        holds_frame=True,
        needs_room=True,
    ),
    Api("fetch", FetchRequest, fetch.handle, 4, 18),
    Api("list_offsets", ListOffsetsRequest, list_offsets.handle, 1, 11),
    Api("metadata", MetadataRequest, metadata.handle, 0, 13),
    Api("offset_commit", OffsetCommitRequest, offset_commit.handle, 2, 10, two_stage=True),
    Api("offset_fetch", OffsetFetchRequest, offset_fetch.handle, 1, 10, two_stage=True),
    Api("find_coordinator", FindCoordinatorRequest, find_coordinator.handle, 0, 6),
    Api("join_group", JoinGroupRequest, join_group.handle, 0, 9, two_stage=True),
    Api("heartbeat", HeartbeatRequest, heartbeat.handle, 0, 4, two_stage=True),
    Api("leave_group", LeaveGroupRequest, leave_group.handle, 0, 5, two_stage=True),
    Api("sync_group", SyncGroupRequest, sync_group.handle, 0, 5, two_stage=True),
    Api("describe_groups", DescribeGroupsRequest, describe_groups.handle, 0, 6, two_stage=True),
    Api("list_groups", ListGroupsRequest, list_groups.handle, 0, 5, two_stage=True),
    Api("api_versions", ApiVersionsRequest, api_versions.handle, 0, 4, refuse_version=api_versions.refuse_version),
    Api("create_topics", CreateTopicsRequest, create_topics.handle, 2, 7),
    Api("delete_topics", DeleteTopicsRequest, delete_topics.handle, 1, 6),
    Api("delete_records", DeleteRecordsRequest, delete_records.handle, 0, 2),
    Api("init_producer_id", InitProducerIdRequest, init_producer_id.handle, 0, 5),
    Api("offset_for_leader_epoch", OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle, 2, 4),
    Api("describe_configs", DescribeConfigsRequest, describe_configs.handle, 1, 4),
    Api("alter_configs", AlterConfigsRequest, alter_configs.handle, 0, 2),
    Api("describe_log_dirs", DescribeLogDirsRequest, describe_log_dirs.handle, 1, 5),
    Api("create_partitions", CreatePartitionsRequest, create_partitions.handle, 0, 3),
    Api("delete_groups", DeleteGroupsRequest, delete_groups.handle, 0, 2, two_stage=True),
    Api("incremental_alter_configs", IncrementalAlterConfigsRequest, incremental_alter_configs.handle, 0, 1),
    Api("offset_delete", OffsetDeleteRequest, offset_delete.handle, 0, 0, two_stage=True),
    Api("describe_cluster", DescribeClusterRequest, describe_cluster.handle, 0, 2),
    Api("describe_producers", DescribeProducersRequest, describe_producers.handle, 0, 0),
    Api("list_config_resources", ListConfigResourcesRequest, list_config_resources.handle, 0, 1),
    Api("describe_topic_partitions", DescribeTopicPartitionsRequest, describe_topic_partitions.handle, 0, 0),
)
