"""EndTxn, key 26: commit or abort a transaction.

Behavior:
- The reply leaves when the decision is durable; then the markers are written. A repeated request gets the same result.
  After Kafka's TransactionCoordinator.endTransaction.
- From version 5 on the producer goes on with a greater epoch, or with another id if its epochs are used up. So late
  requests of the ended transaction cannot get into the next one (KIP-890). An abort is allowed without a begun
  transaction.
- While markers of the previous transaction are being written, the request waits for at most 100 ms. Then it is
  CONCURRENT_TRANSACTIONS, and the client tries again.
- The client needs WRITE on the transactional id. An empty id is INVALID_REQUEST.

Version notes: 2 PRODUCER_FENCED (KIP-360), 5 the answer has the producer's next epoch (KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, ProducerIdentity
from kafkawire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, immediate_reply
from kafkawire.requests.transactions import code_of_refusal

if TYPE_CHECKING:
    from coordinator.api import Future

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_OF_SECOND_PROTOCOL: Final = 5


def handle(context: RequestContext, request: EndTxnRequest) -> PendingReply[EndTxnResponse]:
    """Decide the transaction."""
    if not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return immediate_reply(EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not request.transactional_id:
        return immediate_reply(EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))
    asking = ProducerIdentity(request.producer_id, request.producer_epoch)
    protocol = SECOND_PROTOCOL if context.api_version >= FIRST_VERSION_OF_SECOND_PROTOCOL else FIRST_PROTOCOL
    pending = context.broker.transactions.end(
        request.transactional_id, asking, is_commit=request.committed, protocol=protocol
    )
    return PendingReply([pending], partial(_respond, context.api_version, pending))


def refuse(context: RequestContext, request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """A response with the error."""
    return EndTxnResponse(error_code=code)


def _respond(version: int, pending: Future[ProducerIdentity]) -> EndTxnResponse:
    """The response with the producer's id and epoch from now on; older versions do not encode them."""
    try:
        producer_id, epoch = pending.result()
    except CoordinatorError as error:
        return EndTxnResponse(error_code=code_of_refusal(error, knows_fenced=version >= FIRST_VERSION_WITH_FENCED))
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


API = Api("end_txn", EndTxnRequest, handle, refuse, 0, 5, two_stage=True)
