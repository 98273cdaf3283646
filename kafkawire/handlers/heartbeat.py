"""Heartbeat, key 12: a member of a group is alive, and learns whether it has to join again.

Behavior:
- While the group is being loaded, the reply is a success: on an error the member would leave a generation that is still
  its own. After Kafka's GroupCoordinatorService.heartbeat.
- The client needs READ on the group.

Version notes: 3 static members (KIP-345), 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordinator.groups.api import Claim
from coordinator.groups.commands import Heartbeat
from kafkawire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, code_of, immediate_reply

if TYPE_CHECKING:
    from coordinator.api import Future


def handle(context: RequestContext, request: HeartbeatRequest) -> PendingReply[HeartbeatResponse]:
    """Pass the heartbeat to the group coordinator."""
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return immediate_reply(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    claim = Claim(request.member_id, request.group_instance_id, request.generation_id)
    pending = context.broker.groups.ask(Heartbeat(request.group_id, claim))
    return PendingReply([pending], partial(_respond, pending))


def refuse(context: RequestContext, request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """A response with the error."""
    return HeartbeatResponse(error_code=code)


def _respond(pending: Future[None]) -> HeartbeatResponse:
    code = code_of(pending)
    return HeartbeatResponse(error_code=ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


API = Api("heartbeat", HeartbeatRequest, handle, refuse, 0, 4, two_stage=True)
