"""LeaveGroup, key 13: members leave, or an administrator removes them.

Behavior:
- Each member has its own result; an unknown member, also of an unknown group, is UNKNOWN_MEMBER_ID. A static member may
  be named by its instance id alone. Reasons (KIP-800) are not kept.
- The client needs READ on the group. After Kafka's GroupMetadataManager.classicGroupLeave.

Version notes: before 3 a single member, whose error is the reply's; 3 many members and static ones (KIP-345).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import GroupError
from coordinator.groups.api import Claim
from coordinator.groups.commands import LeaveGroup
from kafkawire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import Future

FIRST_VERSION_WITH_MANY_MEMBERS: Final = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> PendingReply[LeaveGroupResponse]:
    """Remove all named members."""
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return immediate_reply(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    leaving = [Claim(request.member_id)]
    if context.api_version >= FIRST_VERSION_WITH_MANY_MEMBERS:
        leaving = [Claim(one.member_id, one.group_instance_id) for one in request.members]
    pending = context.broker.groups.ask(LeaveGroup(request.group_id, leaving))
    return PendingReply([pending], partial(_respond, context.api_version, leaving, pending))


def refuse(context: RequestContext, request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Refuse all members together."""
    return LeaveGroupResponse(error_code=code)


def _respond(version: int, leaving: Sequence[Claim], pending: Future[list[GroupError | None]]) -> LeaveGroupResponse:
    try:
        outcomes = pending.result()
    except GroupError as error:
        return LeaveGroupResponse(error_code=error_code_of(error))
    rows = [
        MemberResponse(
            member_id=claim.member_id,
            group_instance_id=claim.instance_id,
            error_code=ErrorCode.NONE if error is None else error_code_of(error),
        )
        for claim, error in zip(leaving, outcomes, strict=True)
    ]
    if version >= FIRST_VERSION_WITH_MANY_MEMBERS:
        return LeaveGroupResponse(members=rows)
    return LeaveGroupResponse(error_code=rows[0].error_code)


API = Api("leave_group", LeaveGroupRequest, handle, refuse, 0, 5, two_stage=True)
