"""AddOffsetsToTxn, key 25: a transaction is about to commit offsets of a group.

Behavior:
- It adds the partition of __consumer_offsets that the group belongs to, like AddPartitionsToTxn.
- The client needs WRITE on the transactional id and READ on the group. An empty transactional id is INVALID_REQUEST.

Version notes: 2 PRODUCER_FENCED (KIP-360), 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.transactions.api import FIRST_PROTOCOL, ProducerIdentity
from kafkawire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, immediate_reply
from kafkawire.requests.transactions import code_of_transaction, partition_of_group

if TYPE_CHECKING:
    from coordinator.api import Future

FIRST_VERSION_WITH_FENCED: Final = 2


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> PendingReply[AddOffsetsToTxnResponse]:
    """Add the group's partition."""
    code = _check(context, request)
    if code is not ErrorCode.NONE:
        return immediate_reply(AddOffsetsToTxnResponse(error_code=code))
    asking = ProducerIdentity(request.producer_id, request.producer_epoch)
    added = partition_of_group(context.broker.groups, request.group_id)
    pending = context.broker.transactions.add_partitions(
        request.transactional_id, asking, [added], protocol=FIRST_PROTOCOL
    )
    return PendingReply([pending], partial(_respond, context.api_version, pending))


def refuse(context: RequestContext, request: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """A response with the error."""
    return AddOffsetsToTxnResponse(error_code=code)


def _check(context: RequestContext, request: AddOffsetsToTxnRequest) -> ErrorCode:
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if request.transactional_id else ErrorCode.INVALID_REQUEST


def _respond(version: int, pending: Future[None]) -> AddOffsetsToTxnResponse:
    code = code_of_transaction(pending, knows_fenced=version >= FIRST_VERSION_WITH_FENCED)
    return AddOffsetsToTxnResponse(error_code=code)


API = Api("add_offsets_to_txn", AddOffsetsToTxnRequest, handle, refuse, 0, 4, two_stage=True)
