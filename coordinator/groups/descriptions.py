"""A group seen from outside: its record, and back; its description, its row in a list, and its topics. Pure."""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final

from coordinator.groups.api import GroupDescription, GroupListing, GroupState, Joined, MemberDescription, MemberProtocol
from coordinator.groups.members import Member
from coordinator.groups.records import GroupRecord, MemberRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from coordinator.groups.classic import ClassicGroup

CONSUMER_PROTOCOL: Final = "consumer"

_SUBSCRIPTION_START = Struct(">hi")
_STRING_SIZE = Struct(">h")


def record_of(group: ClassicGroup[Any]) -> GroupRecord:
    """The record of a group: its members, with their metadata for the elected protocol."""
    name = group.protocol_name
    members = tuple(
        MemberRecord(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            one.rebalance_timeout_ms,
            one.session_timeout_ms,
            one.metadata_for(name or ""),
            one.assignment,
        )
        for one in group.members
    )
    return GroupRecord(group.protocol_type or "", group.generation_id, name, group.leader_id, group.changed_ms, members)


def restore(group: ClassicGroup[Any], record: GroupRecord) -> None:
    """Restore a new group from its record; its members' time begins when it is woken."""
    group.protocol_type, group.protocol_name = record.protocol_type, record.protocol_name
    group.generation_id, group.leader_id, group.changed_ms = record.generation_id, record.leader_id, record.changed_ms
    group.state = GroupState.STABLE if record.members else GroupState.EMPTY
    for one in record.members:
        protocols = (MemberProtocol(record.protocol_name or "", one.subscription),)
        member: Member[Any] = Member(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            session_timeout_ms=one.session_timeout_ms,
            rebalance_timeout_ms=one.rebalance_timeout_ms,
            protocols=protocols,
            assignment=one.assignment,
            is_new=False,
        )
        group.members.add(member)


def describe(group: ClassicGroup[Any]) -> GroupDescription:
    """The description of a group, as in ClassicGroup.describe: metadata and assignments only when it is stable."""
    is_stable = group.state is GroupState.STABLE
    name = group.protocol_name or "" if is_stable else ""
    members = tuple(
        MemberDescription(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            one.metadata_for(name) if is_stable else b"",
            one.assignment if is_stable else b"",
        )
        for one in group.members
    )
    return GroupDescription(group.group_id, group.state, group.protocol_type or "", name, members)


def listing(group: ClassicGroup[Any]) -> GroupListing:
    return GroupListing(group.group_id, group.protocol_type or "", group.state)


def joined_as(group: ClassicGroup[Any], member: Member[Any]) -> Joined:
    """The reply to a member when all have joined; that to the leader lists the members."""
    name = group.protocol_name or ""
    members: Iterable[Member[Any]] = group.members if member.member_id == group.leader_id else ()
    return Joined(
        group.generation_id,
        group.protocol_type or "",
        name,
        group.leader_id or "",
        member.member_id,
        tuple((one.member_id, one.instance_id, one.metadata_for(name)) for one in members),
    )


def subscribed_topics(group: ClassicGroup[Any]) -> Collection[str] | None:
    """The topics its members read; None when they may read any (ClassicGroup.computeSubscribedTopics)."""
    if group.protocol_type != CONSUMER_PROTOCOL or not group.members:
        return ()
    if group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members:
        try:
            topics.update(topics_of(member.metadata_for(group.protocol_name)))
        except (struct_error, UnicodeDecodeError, ValueError):
            return None
    return topics


def topics_of(subscription: bytes) -> list[str]:
    """The topics of a ConsumerProtocolSubscription, of any version: later ones only append.

    Errors: struct.error, UnicodeDecodeError, ValueError.
    """
    _, count = _SUBSCRIPTION_START.unpack_from(subscription)
    at = _SUBSCRIPTION_START.size
    topics = []
    for _ in range(count):
        (size_bytes,) = _STRING_SIZE.unpack_from(subscription, at)
        at += _STRING_SIZE.size + size_bytes
        if size_bytes < 0 or at > len(subscription):
            raise ValueError(f"a name of {size_bytes} bytes")
        topics.append(subscription[at - size_bytes : at].decode())
    return topics
