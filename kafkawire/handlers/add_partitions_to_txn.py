"""AddPartitionsToTxn, key 24: a transaction is about to write to partitions.

Behavior:
- All or nothing: if some partitions are unknown or not allowed, the others are OPERATION_NOT_ATTEMPTED. The reply
  leaves when the addition is durable. After KafkaApis.handleAddPartitionsToTxnRequest.
- If markers of the previous transaction are not all written yet, the request waits for at most 100 ms. Then it is
  CONCURRENT_TRANSACTIONS, and the client tries again.
- From version 4 on the clients are brokers, which ask for many transactions at once. They need CLUSTER_ACTION.
  `verify_only` adds nothing: a partition that the transaction lacks is TRANSACTION_ABORTABLE.
- Additions by brokers use the second transaction protocol (KIP-890), additions by clients the first.
- Up to version 3 the client needs WRITE on the transactional id and on the topics. An empty id is INVALID_REQUEST.

Version notes: 2 PRODUCER_FENCED (KIP-360), 4 many transactions, verification (KIP-890), 5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator.api import INTERNAL_TOPICS
from coordinator.errors import CoordinatorError
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Partition, ProducerIdentity
from kafkawire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.pending_reply import PendingReply, immediate_reply
from kafkawire.requests.transactions import code_of_refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.api import Future

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_OF_BROKERS: Final = 4

Codes = dict[Partition, ErrorCode]


class _Question(NamedTuple):
    """A transaction of the request: error codes of its partitions, or the future of the coordinator's answer."""

    transaction: AddPartitionsToTxnTransaction
    partitions: list[Partition]
    outcome: Codes | Future[Any]


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> PendingReply[AddPartitionsToTxnResponse]:
    """Ask for all transactions at once."""
    if context.api_version >= FIRST_VERSION_OF_BROKERS:
        if not context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return immediate_reply(refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        transactions = request.transactions
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    questions = [_ask(context, one) for one in transactions]
    pending = [one.outcome for one in questions if not isinstance(one.outcome, dict)]
    return PendingReply(pending, partial(_respond, context.api_version, questions))


def refuse(context: RequestContext, request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Refuse every partition, or, for a broker, the whole request."""
    if context.api_version >= FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = request.v3_and_below_topics
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(topics, dict.fromkeys(_named(topics), code)))


def _ask(context: RequestContext, one: AddPartitionsToTxnTransaction) -> _Question:
    name, partitions = one.transactional_id, list(_named(one.topics))
    is_client = context.api_version < FIRST_VERSION_OF_BROKERS
    if is_client and not context.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return _Question(one, partitions, dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    codes = _check(context, partitions, is_client=is_client)
    if any(code is not ErrorCode.OPERATION_NOT_ATTEMPTED for code in codes.values()):
        return _Question(one, partitions, codes)
    if not name:
        return _Question(one, partitions, dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
    asking = ProducerIdentity(one.producer_id, one.producer_epoch)
    if one.verify_only:
        return _Question(one, partitions, context.broker.transactions.verify_partitions(name, asking, partitions))
    protocol = FIRST_PROTOCOL if is_client else SECOND_PROTOCOL
    added = context.broker.transactions.add_partitions(name, asking, partitions, protocol=protocol)
    return _Question(one, partitions, added)


def _check(context: RequestContext, partitions: Iterable[Partition], *, is_client: bool) -> Codes:
    """Codes of the partitions: OPERATION_NOT_ATTEMPTED if nothing is wrong. Clients may not name internal topics."""
    topics, codes = context.broker.cluster.image.topics, Codes()
    may_write: dict[str, bool] = {}
    for one in partitions:
        if one.topic not in may_write:
            may_write[one.topic] = not is_client or (
                one.topic not in INTERNAL_TOPICS and context.authorize(Operation.WRITE, ResourceType.TOPIC, one.topic)
            )
        found = topics.get(one.topic)
        if not may_write[one.topic]:
            codes[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif found is None or not 0 <= one.number < len(found.partitions):
            codes[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            codes[one] = ErrorCode.OPERATION_NOT_ATTEMPTED
    return codes


def _respond(version: int, questions: Sequence[_Question]) -> AddPartitionsToTxnResponse:
    if version >= FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transaction.transactional_id,
                    topic_results=_rows(one.transaction.topics, _codes(version, one)),
                )
                for one in questions
            ]
        )
    (one,) = questions
    rows = _rows(one.transaction.topics, _codes(version, one))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def _codes(version: int, one: _Question) -> Codes:
    if isinstance(one.outcome, dict):
        return one.outcome
    try:
        found = one.outcome.result()
    except CoordinatorError as error:
        code = code_of_refusal(error, knows_fenced=version >= FIRST_VERSION_WITH_FENCED)
        return dict.fromkeys(one.partitions, code)
    if not one.transaction.verify_only:
        return dict.fromkeys(one.partitions, ErrorCode.NONE)
    return {
        partition: ErrorCode.NONE if is_there else ErrorCode.TRANSACTION_ABORTABLE
        for partition, is_there in zip(one.partitions, found, strict=True)
    }


def _named(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[Partition]:
    return (Partition(topic.name, number) for topic in topics for number in topic.partitions)


def _rows(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[Partition(topic.name, number)]
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


API = Api("add_partitions_to_txn", AddPartitionsToTxnRequest, handle, refuse, 0, 5, two_stage=True)
