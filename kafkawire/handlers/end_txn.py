"""EndTxn, key 26: commit or abort a transaction.

Behavior:
- The answer comes when the decision is durable; the partitions are told of it then. Asked again for the same it is the
  same again. After Kafka's TransactionCoordinator.endTransaction.
- From version 5 on the producer goes on with another epoch, or, when its epochs are used up, another id: what is late
  of the transaction before cannot get into the next one (KIP-890). To abort is allowed even when nothing was begun.
- While the partitions of the transaction before are being told, it waits a tenth of a second at most and is
  CONCURRENT_TRANSACTIONS then: clients try again.
- It takes the right to write under the transactional id. An empty one is INVALID_REQUEST.

Version notes: 2 PRODUCER_FENCED (KIP-360), 5 the answer has the producer's next epoch (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, ProducerIdentity
from kafkawire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, answered
from kafkawire.requests.transactions import code_of_refusal

if TYPE_CHECKING:
    from coordinator.api import Pending

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_OF_SECOND_PROTOCOL: Final = 5


def handle(context: RequestContext, request: EndTxnRequest) -> PendingReply[EndTxnResponse]:
    """Decides."""
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return answered(EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not request.transactional_id:
        return answered(EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))
    asking = ProducerIdentity(request.producer_id, request.producer_epoch)
    protocol = SECOND_PROTOCOL if context.api_version >= FIRST_VERSION_OF_SECOND_PROTOCOL else FIRST_PROTOCOL
    pending = context.broker.transactions.end(
        request.transactional_id, asking, is_commit=request.committed, protocol=protocol
    )
    return PendingReply([pending], partial(_respond, context.api_version, pending))


def refuse(context: RequestContext, request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """The end."""
    return EndTxnResponse(error_code=code)


def _respond(version: int, pending: Pending[ProducerIdentity]) -> EndTxnResponse:
    """Who the producer is from now on, older versions do not tell."""
    try:
        producer_id, epoch = pending.result()
    except CoordinatorError as error:
        return EndTxnResponse(error_code=code_of_refusal(error, knows_fenced=version >= FIRST_VERSION_WITH_FENCED))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
