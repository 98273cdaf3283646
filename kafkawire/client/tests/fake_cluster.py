"""A Kafka cluster without a network: frames in, frames out, a few topics and groups behind them.

It answers like Apache Kafka for its content; `refuse` makes the next requests of an API fail.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from kafkawire.client.connection import Address
from kafkawire.messages import consumer_group_describe as consumer
from kafkawire.messages import delete_groups, describe_groups, list_groups, offset_commit, offset_delete, offset_fetch
from kafkawire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkawire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kafkawire.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from kafkawire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.headers import decode_request_header, request_class, response_header
from kafkawire.wire.message import Message

PORT = 9092


def encode_assignment(assigned: dict[str, Sequence[int]], version: int = 0) -> bytes:
    """Assignment in the form of a consumer that leads its group."""
    parts = [struct.pack(">hi", version, len(assigned))]
    for topic, partitions in assigned.items():
        parts.append(struct.pack(">h", len(topic)) + topic.encode())
        parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    return b"".join([*parts, struct.pack(">i", -1)])


@dataclass
class FakeLog:
    """Log of a partition. `times` are timestamps of records, by offset."""

    start: int = 0
    end: int = 0
    leader: int = 1
    times: dict[int, int] = field(default_factory=dict)


@dataclass
class FakeMember:
    member_id: str
    assignment: bytes = b""
    instance_id: str | None = None
    client_id: str = "client"
    client_host: str = "/10.0.0.1"


@dataclass
class FakeGroup:
    state: str = "Empty"
    protocol_type: str = "consumer"
    assignor: str = ""
    members: list[FakeMember] = field(default_factory=list)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    coordinator: int = 1
    group_type: str = "classic"
    subscribed: set[str] = field(default_factory=set)


class FakeCluster:
    """Pass `connect` to a Cluster; `requests` has the received requests with their addresses."""

    def __init__(self, broker_count: int = 1) -> None:
        self.addresses = {node: Address(f"kafka-{node}", PORT) for node in range(1, broker_count + 1)}
        self.topics: dict[str, list[FakeLog]] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.versions: dict[int, tuple[int, int] | None] = {}  # overrides by API key; None: not served
        self.requests: list[tuple[Address, Any, int]] = []
        self.unreachable: set[Address] = set()
        self.silent: set[Address] = set()
        self._refusals: dict[int, list[int]] = defaultdict(list)
        self._answers: dict[int, Callable[[Address, Any, int], Message]] = {
            2: self._list_offsets,
            3: self._metadata,
            8: self._offset_commit,
            9: self._offset_fetch,
            10: self._find_coordinator,
            15: self._describe_groups,
            16: self._list_groups,
            18: self._api_versions,
            42: self._delete_groups,
            47: self._offset_delete,
            69: self._consumer_group_describe,
        }

    @property
    def bootstrap(self) -> list[Address]:
        return list(self.addresses.values())

    def refuse(self, request: type[Message], *codes: int) -> None:
        """Refuse the next requests of that kind, with these codes."""
        self._refusals[request.API_KEY] += codes

    def requests_of(self, request: type[Message]) -> list[Any]:
        """The received requests of that kind."""
        return [one for _, one, _ in self.requests if isinstance(one, request)]

    async def connect(self, address: Address) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if address in self.unreachable or address not in self.addresses.values():
            raise ConnectionRefusedError(111, "Connection refused")
        return FakeStream(self, address)

    def answer(self, address: Address, frame: bytes) -> bytes:
        """The frame of the reply, with its size."""
        header, start = decode_request_header(frame)
        request = request_class(header.api_key).decode(frame, header.api_version, start)
        self.requests.append((address, request, header.api_version))
        response = self._answers[header.api_key](address, request, header.api_version)
        body = response_header(header.api_key, header.api_version, header.correlation_id)
        body += b"".join(response.encode(header.api_version))
        return struct.pack(">i", len(body)) + body

    def _refusal(self, api_key: int) -> int:
        return self._refusals[api_key].pop(0) if self._refusals[api_key] else 0

    def _api_versions(self, address: Address, request: Any, version: int) -> Message:
        ours = {key: request_class(key).VERSIONS for key in self._answers}
        known = {key: self.versions.get(key, versions) for key, versions in ours.items()}
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=versions[0], max_version=versions[1])
                for key, versions in known.items()
                if versions is not None
            ]
        )

    def _metadata(self, address: Address, request: Any, version: int) -> Message:
        assert not request.allow_auto_topic_creation
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=one.host, port=one.port)
                for node, one in self.addresses.items()
            ],
            controller_id=min(self.addresses),
            topics=[
                self._topic(name)
                for name in (self.topics if request.topics is None else [one.name for one in request.topics])
            ],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return MetadataResponseTopic(
            name=name,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=log.leader, replica_nodes=[log.leader], isr_nodes=[log.leader]
                )
                for index, log in enumerate(self.topics[name])
            ],
        )

    def _list_offsets(self, address: Address, request: Any, version: int) -> Message:
        assert request.replica_id == -1
        refused = self._refusal(2)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            error_code=refused,
                            offset=self._offset_at(address, topic.name, one),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _offset_at(self, address: Address, topic: str, asked: Any) -> int:
        log: FakeLog = self.topics[topic][asked.partition_index]
        assert self.addresses[log.leader] == address
        if asked.timestamp < 0:
            return log.end if asked.timestamp == -1 else log.start
        return min((offset for offset, time in log.times.items() if time >= asked.timestamp), default=-1)

    def _find_coordinator(self, address: Address, request: Any, version: int) -> Message:
        assert request.key_type == 0
        refused = self._refusal(10)
        return FindCoordinatorResponse(
            coordinators=[self._coordinator(key, refused) for key in request.coordinator_keys]
        )

    def _coordinator(self, key: str, refused: int) -> Coordinator:
        if refused:
            return Coordinator(key=key, error_code=refused, error_message="not yet")
        address = self.addresses[self.groups.get(key, FakeGroup()).coordinator]
        return Coordinator(key=key, host=address.host, port=address.port)

    def _mine(self, address: Address, group_id: str) -> FakeGroup | None:
        group = self.groups.get(group_id)
        assert group is None or self.addresses[group.coordinator] == address
        return group

    def _list_groups(self, address: Address, request: Any, version: int) -> Message:
        refused = self._refusal(16)
        return list_groups.ListGroupsResponse(
            error_code=refused,
            groups=[
                list_groups.ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
                for group_id, group in self.groups.items()
                if self.addresses[group.coordinator] == address
                and not refused
                and group.state in (request.states_filter or [group.state])
                and group.group_type in (request.types_filter or [group.group_type])
            ],
        )

    def _describe_groups(self, address: Address, request: Any, version: int) -> Message:
        refused = self._refusal(15)
        return describe_groups.DescribeGroupsResponse(
            groups=[self._described(address, group_id, refused, version) for group_id in request.groups]
        )

    def _described(self, address: Address, group_id: str, refused: int, version: int) -> describe_groups.DescribedGroup:
        group = self._mine(address, group_id)
        if refused:
            return describe_groups.DescribedGroup(group_id=group_id, error_code=refused)
        if group is None or group.group_type != "classic":
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
            return describe_groups.DescribedGroup(
                group_id=group_id, error_code=code, error_message=f"Group {group_id} not found.", group_state="Dead"
            )
        return describe_groups.DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type,
            protocol_data=group.assignor,
            members=[
                describe_groups.DescribedGroupMember(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    member_assignment=one.assignment,
                )
                for one in group.members
            ],
        )

    def _consumer_group_describe(self, address: Address, request: Any, version: int) -> Message:
        return consumer.ConsumerGroupDescribeResponse(
            groups=[self._consumer_described(address, group_id) for group_id in request.group_ids]
        )

    def _consumer_described(self, address: Address, group_id: str) -> consumer.DescribedGroup:
        group = self._mine(address, group_id)
        if group is None or group.group_type != "consumer":
            return consumer.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        assigned = consumer.Assignment(
            topic_partitions=[consumer.TopicPartitions(topic_name=name, partitions=[0]) for name in group.subscribed]
        )
        return consumer.DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            assignor_name=group.assignor,
            members=[
                consumer.Member(
                    member_id=one.member_id, client_id=one.client_id, client_host=one.client_host, assignment=assigned,
                    target_assignment=assigned,
                )
                for one in group.members
            ],
        )  # fmt: skip

    def _offset_fetch(self, address: Address, request: Any, version: int) -> Message:
        assert version in (8, 9)
        refused = self._refusal(9)
        return offset_fetch.OffsetFetchResponse(
            groups=[
                offset_fetch.OffsetFetchResponseGroup(
                    group_id=one.group_id,
                    error_code=refused,
                    topics=[
                        offset_fetch.OffsetFetchResponseTopics(
                            name=topic,
                            partitions=[
                                offset_fetch.OffsetFetchResponsePartitions(
                                    partition_index=partition, committed_offset=offset, committed_leader_epoch=3
                                )
                            ],
                        )
                        for (topic, partition), offset in (
                            self._mine(address, one.group_id) or FakeGroup()
                        ).offsets.items()
                        if not refused
                    ],
                )
                for one in request.groups
            ]
        )

    def _offset_commit(self, address: Address, request: Any, version: int) -> Message:
        assert (request.generation_id_or_member_epoch, request.member_id, version <= 9) == (-1, "", True)
        group = self._mine(address, request.group_id) or self.groups.setdefault(request.group_id, FakeGroup())
        code = self._refusal(8) or (ErrorCode.UNKNOWN_MEMBER_ID if group.members else 0)
        if not code:
            group.offsets.update(
                {
                    (topic.name, one.partition_index): one.committed_offset
                    for topic in request.topics
                    for one in topic.partitions
                }
            )
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=code
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _offset_delete(self, address: Address, request: Any, version: int) -> Message:
        group = self._mine(address, request.group_id)
        if group is None:
            return offset_delete.OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        topics = []
        for topic in request.topics:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in group.subscribed else 0
            for one in topic.partitions:
                if not code:
                    group.offsets.pop((topic.name, one.partition_index), None)
            rows = [
                offset_delete.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)
                for one in topic.partitions
            ]
            topics.append(offset_delete.OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
        return offset_delete.OffsetDeleteResponse(topics=topics)

    def _delete_groups(self, address: Address, request: Any, version: int) -> Message:
        return delete_groups.DeleteGroupsResponse(
            results=[
                delete_groups.DeletableGroupResult(group_id=name, error_code=self._delete(address, name))
                for name in request.groups_names
            ]
        )

    def _delete(self, address: Address, group_id: str) -> int:
        group = self._mine(address, group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.members:
            return ErrorCode.NON_EMPTY_GROUP
        del self.groups[group_id]
        return 0


class FakeStream(trio.abc.Stream):
    """A connection whose replies come in small pieces."""

    def __init__(self, cluster: FakeCluster, address: Address) -> None:
        self._cluster = cluster
        self._address = address
        self._sent = bytearray()
        self._replies = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._sent += data
        for frame in self._frames():
            if self._address not in self._cluster.silent:
                self._replies += self._cluster.answer(self._address, frame)

    def _frames(self) -> Iterable[bytes]:
        while len(self._sent) >= 4 and len(self._sent) >= 4 + (size := int.from_bytes(self._sent[:4], "big")):
            yield bytes(self._sent[4 : 4 + size])
            del self._sent[: 4 + size]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._replies:
            await trio.sleep_forever()
        piece = bytes(self._replies[: min(max_bytes or 7, 7)])
        del self._replies[: len(piece)]
        return piece

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
