"""Heartbeat, key 12: a member of a group is alive, and learns whether it has to join again.

Behavior:
- A group that is being loaded answers as if all were well: a member that was told otherwise would leave a generation
  that is still its own. After Kafka's GroupCoordinatorService.heartbeat.
- It takes the right to read the group.

Version notes: 3 static members (KIP-345), 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordinator.groups.api import Claim
from kafkawire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, answered, code_of

if TYPE_CHECKING:
    from coordinator.api import Pending


def handle(context: RequestContext, request: HeartbeatRequest) -> PendingReply[HeartbeatResponse]:
    """Passes it on."""
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return answered(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    claim = Claim(request.member_id, request.group_instance_id, request.generation_id)
    pending = context.broker.groups.heartbeat(request.group_id, claim)
    return PendingReply([pending], partial(_respond, pending))


def refuse(context: RequestContext, request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """The heartbeat."""
    return HeartbeatResponse(error_code=code)


def code_told(pending: Pending[None]) -> ErrorCode:
    """What the member is told when its answer is settled."""
    code = code_of(pending)
    return ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code


def _respond(pending: Pending[None]) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code_told(pending))
