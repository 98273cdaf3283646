"""JoinGroup, key 11: join a group, or rejoin one that rebalances.

Behavior:
- The reply waits until all members have joined, at most for the longest rebalance timeout of them. Meanwhile later
  replies of this connection wait as well. If the client disconnects, its member stays until its session expires.
- Only the leader gets the list of members. Reasons of members (KIP-800) are not kept.
- The client needs READ on the group. After Kafka's GroupMetadataManager.classicGroupJoin.

Version notes: 1 rebalance timeout (before, the session timeout), 4 a newcomer is told its id first (KIP-394), 5 static
members (KIP-345), 7 protocol type and a protocol name that may be null (KIP-559), 9 a leader that does not have to
assign (KIP-814).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupError,
    GroupIsFull,
    MemberIdRequired,
    NotCoordinator,
)
from coordinator.groups.api import Join, MemberProtocol
from coordinator.groups.commands import JoinGroup
from kafkawire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply

if TYPE_CHECKING:
    from coordinator.api import Future
    from coordinator.groups.api import Joined

FIRST_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_VERSION_WITH_ID_REQUIRED: Final = 4
FIRST_VERSION_WITH_NULL_NAME: Final = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT: Final = 9

_NO_MEMBER: Final = ""
_WITHOUT_MEMBER_ID: Final = (GroupIsFull, NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable)


def handle(context: RequestContext, request: JoinGroupRequest) -> PendingReply[JoinGroupResponse]:
    """Join the group; the reply comes with the new generation."""
    version = context.api_version
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return immediate_reply(_refuse(version, ErrorCode.GROUP_AUTHORIZATION_FAILED, _NO_MEMBER))
    pending = context.broker.groups.ask(JoinGroup(request.group_id, _join(context, request)))
    return PendingReply([pending], partial(_respond, version, request.member_id, pending))


def refuse(context: RequestContext, request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    """A response with the error."""
    return _refuse(context.api_version, code, _NO_MEMBER)


def _join(context: RequestContext, request: JoinGroupRequest) -> Join:
    version = context.api_version
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = request.session_timeout_ms
    return Join(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",  # the form of Java's InetAddress, which tools show
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(one.name, one.metadata) for one in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        must_know_its_id=version >= FIRST_VERSION_WITH_ID_REQUIRED,
        may_skip_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
    )


def _respond(version: int, member_id: str, pending: Future[Joined]) -> JoinGroupResponse:
    try:
        joined = pending.result()
    except GroupError as error:
        if isinstance(error, MemberIdRequired):
            member_id = error.member_id
        elif isinstance(error, _WITHOUT_MEMBER_ID):
            member_id = _NO_MEMBER
        return _refuse(version, error_code_of(error), member_id)
    return JoinGroupResponse(
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type or None,
        protocol_name=_name(version, joined.protocol_name),
        leader=joined.leader_id,
        skip_assignment=joined.skips_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(member_id=one, group_instance_id=instance_id, metadata=metadata)
            for one, instance_id, metadata in joined.members
        ],
    )


def _refuse(version: int, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=_name(version, ""), member_id=member_id)


def _name(version: int, name: str) -> str | None:
    """The protocol name; empty ones are null in versions that allow null."""
    return name or (None if version >= FIRST_VERSION_WITH_NULL_NAME else "")


API = Api("join_group", JoinGroupRequest, handle, refuse, 0, 9, two_stage=True)
