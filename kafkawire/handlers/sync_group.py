"""SyncGroup, key 14: the leader of the group assigns partitions, and every member gets its assignment.

Behavior:
- The reply waits until the leader has assigned, and meanwhile so do later replies of this connection.
- The client needs READ on the group. After Kafka's GroupMetadataManager.classicGroupSync.

Version notes: 3 static members (KIP-345), 5 protocol type and name, which must be there (KIP-559).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import GroupError
from coordinator.groups.api import Claim
from coordinator.groups.commands import SyncGroup
from kafkawire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply

if TYPE_CHECKING:
    from coordinator.api import Future
    from coordinator.groups.api import Synced

FIRST_VERSION_WITH_PROTOCOL: Final = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> PendingReply[SyncGroupResponse]:
    """Pass the request on; the reply comes with the member's assignment."""
    code = _check(context, request)
    if code is not ErrorCode.NONE:
        return immediate_reply(SyncGroupResponse(error_code=code))
    command = SyncGroup(
        request.group_id,
        claim=Claim(request.member_id, request.group_instance_id, request.generation_id),
        protocol=(request.protocol_type, request.protocol_name),
        assignments={one.member_id: one.assignment for one in request.assignments},
    )
    pending = context.broker.groups.ask(command)
    return PendingReply([pending], partial(_respond, pending))


def refuse(context: RequestContext, request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """A response with the error."""
    return SyncGroupResponse(error_code=code)


def _check(context: RequestContext, request: SyncGroupRequest) -> ErrorCode:
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _respond(pending: Future[Synced]) -> SyncGroupResponse:
    try:
        synced = pending.result()
    except GroupError as error:
        return SyncGroupResponse(error_code=error_code_of(error))
    return SyncGroupResponse(
        protocol_type=synced.protocol_type or None,
        protocol_name=synced.protocol_name or None,
        assignment=synced.assignment,
    )


API = Api("sync_group", SyncGroupRequest, handle, refuse, 0, 5, two_stage=True)
