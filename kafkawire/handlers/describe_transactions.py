"""DescribeTransactions, key 65: the state of transactional ids (KIP-664).

Behavior:
- Each id has its own result, and only its coordinator knows it. An unknown id is TRANSACTIONAL_ID_NOT_FOUND, an empty
  one INVALID_REQUEST.
- The client needs DESCRIBE on the transactional id; partitions of topics without DESCRIBE are left out. After
  KafkaApis.handleDescribeTransactionsRequest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coordinator.errors import CoordinatorError
from kafkawire.handlers.common.repeats import check_repeats
from kafkawire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.api import Future
    from coordinator.transactions.api import Partition, TransactionDescription

    Description = tuple[str, Future[TransactionDescription] | ErrorCode]


def handle(context: RequestContext, request: DescribeTransactionsRequest) -> PendingReply[DescribeTransactionsResponse]:
    """Ask for all ids at once."""
    check_repeats(request.transactional_ids)
    descriptions = [(name, _describe(context, name)) for name in request.transactional_ids]
    pending = [one for _, one in descriptions if not isinstance(one, ErrorCode)]
    return PendingReply(pending, partial(_respond, context, descriptions))


def refuse(
    context: RequestContext, request: DescribeTransactionsRequest, code: ErrorCode
) -> DescribeTransactionsResponse:
    """Refuse every id."""
    states = [TransactionState(transactional_id=name, error_code=code) for name in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(context: RequestContext, name: str) -> Future[TransactionDescription] | ErrorCode:
    if not context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return context.broker.transactions.describe(name) if name else ErrorCode.INVALID_REQUEST


def _respond(context: RequestContext, descriptions: Sequence[Description]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[_state(context, *one) for one in descriptions])


def _state(context: RequestContext, name: str, pending: Future[TransactionDescription] | ErrorCode) -> TransactionState:
    if isinstance(pending, ErrorCode):
        return TransactionState(transactional_id=name, error_code=pending)
    try:
        found = pending.result()
    except CoordinatorError as error:
        return TransactionState(transactional_id=name, error_code=error_code_of(error))
    return TransactionState(
        transactional_id=name,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.identity.producer_id,
        producer_epoch=found.identity.epoch,
        topics=_topics(context, found.partitions),
    )


def _topics(context: RequestContext, partitions: Iterable[Partition]) -> list[TopicData]:
    by_topic: dict[str, list[int]] = {}
    for one in sorted(partitions):
        by_topic.setdefault(one.topic, []).append(one.number)
    return [
        TopicData(topic=topic, partitions=numbers)
        for topic, numbers in by_topic.items()
        if context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]


API = Api("describe_transactions", DescribeTransactionsRequest, handle, refuse, 0, 0, two_stage=True)
