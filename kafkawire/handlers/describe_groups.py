"""DescribeGroups, key 15: the state of groups, their members and assignments.

Behavior:
- Each group has its own result. An unknown group is Dead, and up to version 5 no error.
- The client needs DESCRIBE on the group. After Kafka's KafkaApis.handleDescribeGroupsRequest.

Version notes: 3 authorized operations (KIP-430), 4 static members (KIP-345), 6 GROUP_ID_NOT_FOUND with a text
(KIP-1043).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import GroupError, UnknownGroup
from coordinator.groups.commands import DescribeGroup
from kafkawire.handlers.common.repeats import check_repeats
from kafkawire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of, shortened
from kafkawire.requests.pending_reply import PendingReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import Future
    from coordinator.groups.api import GroupDescription

    Description = tuple[str, Future[GroupDescription] | None]

FIRST_VERSION_WITH_UNKNOWN_GROUP: Final = 6
DEAD: Final = "Dead"


def handle(context: RequestContext, request: DescribeGroupsRequest) -> PendingReply[DescribeGroupsResponse]:
    """Describe all allowed groups."""
    check_repeats(request.groups)
    groups = context.broker.groups
    descriptions = [
        (group_id, groups.ask(DescribeGroup(group_id)) if _may(context, Operation.DESCRIBE, group_id) else None)
        for group_id in request.groups
    ]
    pending = [one for _, one in descriptions if one is not None]
    return PendingReply(pending, partial(_respond, context, request.include_authorized_operations, descriptions))


def refuse(context: RequestContext, request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """Refuse every group."""
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=one, error_code=code) for one in request.groups])


def _may(context: RequestContext, operation: Operation, group_id: str) -> bool:
    return context.authorize(operation, ResourceType.GROUP, group_id)


def _respond(
    context: RequestContext, include_authorized_operations: bool, descriptions: Sequence[Description]
) -> DescribeGroupsResponse:
    rows = [_describe(context.api_version, group_id, pending) for group_id, pending in descriptions]
    if include_authorized_operations:
        for row in rows:
            if row.error_code == ErrorCode.NONE:
                row.authorized_operations = context.authorized_operations(ResourceType.GROUP, row.group_id)
    return DescribeGroupsResponse(groups=rows)


def _describe(version: int, group_id: str, pending: Future[GroupDescription] | None) -> DescribedGroup:
    if pending is None:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        found = pending.result()
    except UnknownGroup as error:
        row = DescribedGroup(group_id=group_id, group_state=DEAD)
        if version >= FIRST_VERSION_WITH_UNKNOWN_GROUP:
            row.error_code = error_code_of(error)
            row.error_message = shortened(f"Group {group_id} not found.")
        return row
    except GroupError as error:
        return DescribedGroup(group_id=group_id, error_code=error_code_of(error))
    return DescribedGroup(
        group_id=group_id,
        group_state=found.state.value,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in found.members
        ],
    )


API = Api("describe_groups", DescribeGroupsRequest, handle, refuse, 0, 6, two_stage=True)
