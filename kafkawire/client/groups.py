"""Consumer groups for administrators: list, describe, fetch, commit and delete offsets, delete groups.

For groups of the classic protocol and of the consumer protocol (KIP-848). Each item has its own result: a value or a
Refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkawire.client.cluster import Cluster
from kafkawire.client.connection import Address, Connection
from kafkawire.client.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from kafkawire.client.errors import ClientError, Refusal, refusal
from kafkawire.client.partitions import TopicPartition, by_topic
from kafkawire.messages import consumer_group_describe as consumer
from kafkawire.messages import describe_groups as classic
from kafkawire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkawire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkawire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from kafkawire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from kafkawire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kafkawire.requests.errors import ErrorCode

CLASSIC, CONSUMER = "classic", "consumer"
DEAD = "Dead"


class GroupListing(NamedTuple):
    """A listed group. State and type are empty if the broker is too old to tell them."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. `partitions` is None if only the members can decode the assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: list[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class Group:
    """A described group. `assignor` is the protocol of the generation."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    assignor: str
    coordinator: Address
    members: list[Member]


class Committed(NamedTuple):
    offset: int
    leader_epoch: int


CommittedOffsets = dict[TopicPartition, Committed]
OffsetResults = dict[TopicPartition, Refusal | None]  # None: done


async def list_groups(
    cluster: Cluster, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """Groups of all brokers, by name. Raises ClientError."""
    at_least = 5 if types else 4 if states else 0

    async def ask(connection: Connection) -> list[GroupListing] | Refusal:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = await connection.call(request, ListGroupsResponse, at_least=at_least)
        if answer.error_code:
            return refusal(answer.error_code)
        return [GroupListing(one.group_id, one.group_state, one.group_type, one.protocol_type) for one in answer.groups]

    listed: list[GroupListing] = []
    for address, answer in (await cluster.at_brokers(ask)).items():
        if isinstance(answer, Refusal):
            raise ClientError(f"{address} does not list its groups: {answer}")
        listed += answer
    return sorted(listed)


async def describe_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, Group | Refusal]:
    """Descriptions of groups; GROUP_ID_NOT_FOUND for unknown ones."""

    async def ask(connection: Connection, group_ids: list[str]) -> dict[str, Group | Refusal]:
        answer = await connection.call(classic.DescribeGroupsRequest(groups=group_ids), classic.DescribeGroupsResponse)
        found = {one.group_id: _classic_group(one, connection.address) for one in answer.groups}
        others = [group_id for group_id, group in found.items() if _is_not_found(group)]
        if others and connection.supports(consumer.ConsumerGroupDescribeRequest):
            request = consumer.ConsumerGroupDescribeRequest(group_ids=others)
            modern = await connection.call(request, consumer.ConsumerGroupDescribeResponse)
            for one in modern.groups:
                if one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    found[one.group_id] = _consumer_group(one, connection.address)
        return found

    return await cluster.at_coordinators(group_ids, ask)


def _is_not_found(group: Group | Refusal) -> bool:
    return isinstance(group, Refusal) and group.code == ErrorCode.GROUP_ID_NOT_FOUND


def _classic_group(one: classic.DescribedGroup, coordinator: Address) -> Group | Refusal:
    if one.error_code:
        return refusal(one.error_code, one.error_message)
    if one.group_state == DEAD:  # the state of unknown groups before version 6
        return refusal(ErrorCode.GROUP_ID_NOT_FOUND)
    is_read = one.protocol_type == PROTOCOL_TYPE
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            decode_assignment(member.member_assignment) if is_read else None,
        )
        for member in one.members
    ]
    return Group(one.group_id, one.group_state, CLASSIC, one.protocol_type, one.protocol_data, coordinator, members)


def _consumer_group(one: consumer.DescribedGroup, coordinator: Address) -> Group | Refusal:
    if one.error_code:
        return refusal(one.error_code, one.error_message)
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            sorted(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for member in one.members
    ]
    return Group(one.group_id, one.group_state, CONSUMER, PROTOCOL_TYPE, one.assignor_name, coordinator, members)


async def committed_offsets(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, CommittedOffsets | Refusal]:
    """All committed offsets of these groups; none for an unknown group."""

    async def ask(connection: Connection, group_ids: list[str]) -> dict[str, CommittedOffsets | Refusal]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one, topics=None) for one in group_ids])
        # Version 8 takes several groups (KIP-709), version 10 names topics by their ids.
        answer = await connection.call(request, OffsetFetchResponse, at_least=8, at_most=9)
        return {one.group_id: _committed(one) for one in answer.groups}

    return await cluster.at_coordinators(group_ids, ask)


def _committed(one: OffsetFetchResponseGroup) -> CommittedOffsets | Refusal:
    if one.error_code:
        return refusal(one.error_code)
    return {
        TopicPartition(topic.name, row.partition_index): Committed(row.committed_offset, row.committed_leader_epoch)
        for topic in one.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> OffsetResults | Refusal:
    """Commit offsets as a client outside the group. UNKNOWN_MEMBER_ID if the group has members."""

    async def ask(connection: Connection, group_ids: list[str]) -> dict[str, OffsetResults | Refusal]:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=one.partition, committed_offset=offsets[one], committed_metadata=""
                    )
                    for one in partitions
                ],
            )
            for topic, partitions in by_topic(offsets)
        ]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        answer = await connection.call(request, OffsetCommitResponse, at_most=9)  # version 10 names topics by ids
        return {group_id: _outcome(answer.topics)}

    return (await cluster.at_coordinators([group_id], ask))[group_id]


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition]
) -> OffsetResults | Refusal:
    """Delete committed offsets. GROUP_SUBSCRIBED_TO_TOPIC if members of the group read the topic."""

    async def ask(connection: Connection, group_ids: list[str]) -> dict[str, OffsetResults | Refusal]:
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=one.partition) for one in topic_partitions],
            )
            for topic, topic_partitions in by_topic(partitions)
        ]
        answer = await connection.call(OffsetDeleteRequest(group_id=group_id, topics=topics), OffsetDeleteResponse)
        return {group_id: refusal(answer.error_code) if answer.error_code else _outcome(answer.topics)}

    return (await cluster.at_coordinators([group_id], ask))[group_id]


def _outcome(
    topics: Iterable[OffsetCommitResponseTopic] | Iterable[OffsetDeleteResponseTopic],
) -> OffsetResults | Refusal:
    """Results by partition.

    If all have the same error, it is one Refusal: it concerns the group, and may be transient.
    """
    codes = {
        TopicPartition(topic.name, row.partition_index): row.error_code for topic in topics for row in topic.partitions
    }
    distinct = set(codes.values())
    if len(distinct) == 1 and 0 not in distinct:
        return refusal(distinct.pop())
    return {one: refusal(code) if code else None for one, code in codes.items()}


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
    """Delete groups with their offsets; None for success."""

    async def ask(connection: Connection, group_ids: list[str]) -> dict[str, Refusal | None]:
        answer = await connection.call(DeleteGroupsRequest(groups_names=group_ids), DeleteGroupsResponse)
        return {one.group_id: refusal(one.error_code) if one.error_code else None for one in answer.results}

    return await cluster.at_coordinators(group_ids, ask)
