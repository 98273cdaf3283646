"""ListGroups, key 16: the groups that this broker coordinates.

Behavior:
- Filters ignore case; an unknown state or type matches nothing.
- With DESCRIBE on the cluster all groups are listed, else the groups with DESCRIBE: nothing is refused. After Kafka's
  KafkaApis.handleListGroupsRequest.

Version notes: 4 states, and a filter of them (KIP-518), 5 types, and a filter of them (KIP-848).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordinator.errors import GroupError
from kafkawire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply

if TYPE_CHECKING:
    from coordinator.api import Future
    from coordinator.groups.api import GroupListing


def handle(context: RequestContext, request: ListGroupsRequest) -> PendingReply[ListGroupsResponse]:
    """List the groups that match the filters and that the client may describe."""
    pending = context.broker.groups.list_groups()
    return PendingReply([pending], partial(_respond, context, request, pending))


def refuse(context: RequestContext, request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """A response with the error."""
    return ListGroupsResponse(error_code=code)


def _respond(
    context: RequestContext, request: ListGroupsRequest, pending: Future[list[GroupListing]]
) -> ListGroupsResponse:
    try:
        found = pending.result()
    except GroupError as error:
        return ListGroupsResponse(error_code=error_code_of(error))
    states = {state.strip().lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    sees_all = context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    rows = [
        ListedGroup(
            group_id=one.group_id,
            protocol_type=one.protocol_type,
            group_state=one.state.value,
            group_type=one.group_type,
        )
        for one in found
        if (not states or one.state.value.lower() in states)
        and (not types or one.group_type in types)
        and (sees_all or context.authorize(Operation.DESCRIBE, ResourceType.GROUP, one.group_id))
    ]
    return ListGroupsResponse(groups=rows)


API = Api("list_groups", ListGroupsRequest, handle, refuse, 0, 5, two_stage=True)
