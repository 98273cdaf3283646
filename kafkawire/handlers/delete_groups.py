"""DeleteGroups, key 42: groups without members, and all their committed offsets (KIP-229).

Behavior:
- Each group has one result, however often it is named.
- The client needs DELETE on the group. After Kafka's KafkaApis.handleDeleteGroupsRequest.

Version notes: 2 flexible, 3 an error message, which is null: the error codes say all there is to say.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordinator.groups.commands import DeleteGroup
from kafkawire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.api import Future


def handle(context: RequestContext, request: DeleteGroupsRequest) -> PendingReply[DeleteGroupsResponse]:
    """Delete all allowed groups."""
    deletions = {
        group_id: context.broker.groups.ask(DeleteGroup(group_id))
        if context.authorize(Operation.DELETE, ResourceType.GROUP, group_id)
        else None
        for group_id in dict.fromkeys(request.groups_names)
    }
    return PendingReply([one for one in deletions.values() if one is not None], partial(_respond, deletions))


def refuse(context: RequestContext, request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """Refuse every group."""
    rows = [DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    return DeleteGroupsResponse(results=rows)


def _respond(deletions: Mapping[str, Future[None] | None]) -> DeleteGroupsResponse:
    rows = [
        DeletableGroupResult(
            group_id=group_id,
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if pending is None else code_of(pending),
        )
        for group_id, pending in deletions.items()
    ]
    return DeleteGroupsResponse(results=rows)


API = Api("delete_groups", DeleteGroupsRequest, handle, refuse, 0, 3, two_stage=True)
