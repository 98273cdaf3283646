"""ListTransactions, key 66: the transactional ids that this broker coordinates (KIP-664).

Behavior:
- Filters narrow the list: by state, producer id, age of the transaction, and a pattern (RE2) that the whole id has to
  match; an invalid one is INVALID_REGULAR_EXPRESSION. Unknown states are returned.
- The client needs DESCRIBE on each transactional id; others are left out. After
  TransactionStateManager.listTransactionStates.

Version notes: 1 duration (KIP-994), 2 pattern (KIP-1152).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError
from coordinator.transactions.api import TransactionState
from kafkawire.handlers.common.patterns import compile_pattern
from kafkawire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafkawire.messages.list_transactions import TransactionState as Listed
from kafkawire.patterns import InvalidPattern
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.api import Future
    from coordinator.transactions.api import TransactionListing

_STATES: Final = {state.label: state for state in TransactionState}


def handle(context: RequestContext, request: ListTransactionsRequest) -> PendingReply[ListTransactionsResponse]:
    """Ask for all transactions, and filter them."""
    try:
        fits = _filter(request, context.broker.now_ms())
    except InvalidPattern:
        return immediate_reply(refuse(context, request, ErrorCode.INVALID_REGULAR_EXPRESSION))
    pending = context.broker.transactions.list_transactions()
    return PendingReply([pending], partial(_respond, context, request, fits, pending))


def refuse(context: RequestContext, request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """A response with the error."""
    return ListTransactionsResponse(error_code=code)


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionListing], bool]:
    """A filter from the request. Raises InvalidPattern."""
    states = {_STATES.get(name) for name in request.state_filters}
    producer_ids, duration_ms = set(request.producer_id_filters), request.duration_filter
    has_name = compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def fits(one: TransactionListing) -> bool:
        if producer_ids and one.producer_id not in producer_ids:
            return False
        if states and one.state not in states:
            return False
        if duration_ms >= 0 and now_ms - one.started_ms <= duration_ms:
            return False
        return has_name is None or has_name(one.transactional_id)

    return fits


def _respond(
    context: RequestContext,
    request: ListTransactionsRequest,
    fits: Callable[[TransactionListing], bool],
    pending: Future[list[TransactionListing]],
) -> ListTransactionsResponse:
    try:
        found = pending.result()
    except CoordinatorError as error:
        return refuse(context, request, error_code_of(error))
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            Listed(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.label,
            )
            for one in found
            if fits(one) and context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )


API = Api("list_transactions", ListTransactionsRequest, handle, refuse, 0, 2, two_stage=True)
