"""WriteTxnMarkers, key 27: write the markers that transaction coordinators, or an administrator, have decided.

Behavior:
- Each partition has its own result when its marker is durable. A marker of the second protocol (KIP-890) has an epoch
  that no record of its transaction has: a late marker ends nothing. The transaction's coordinator is not asked:
  `kafka-transactions abort` is for transactions that it does not know any more.
- A partition of __consumer_offsets that is not served now is NOT_LEADER_OR_FOLLOWER: coordinators try again.
- The client needs ALTER on the cluster, or CLUSTER_ACTION. After KafkaApis.handleWriteTxnMarkersRequest.

Version notes: 2 the version of the transaction's protocol (KIP-1228).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from coordinator.errors import CoordinatorError
from coordinator.state.log import StateMarker
from coordinator.transactions.api import Partition
from engine.errors import EngineError
from kafkawire.handlers.common.repeats import check_repeats
from kafkawire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.pending_reply import PendingReply, immediate_reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coordinator.api import Future

_OF_A_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> PendingReply[WriteTxnMarkersResponse]:
    """Write all markers at once."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) and not context.authorize(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return immediate_reply(refuse(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    for one in request.markers:
        check_repeats(list(_partitions(one)))
    writer = context.broker.markers
    pending = [writer.write(_marker(one), each) for one in request.markers for each in _partitions(one)]
    return PendingReply(pending, partial(_respond, request, pending))


def refuse(context: RequestContext, request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    """Refuse every partition."""
    count = sum(1 for one in request.markers for _ in _partitions(one))
    return _response_of(request, iter([code] * count))


def _marker(one: WritableTxnMarker) -> StateMarker:
    return StateMarker(
        one.producer_id, one.producer_epoch, one.coordinator_epoch, one.transaction_result, one.transaction_version
    )


def _partitions(one: WritableTxnMarker) -> Iterator[Partition]:
    return (Partition(topic.name, number) for topic in one.topics for number in topic.partition_indexes)


def _respond(request: WriteTxnMarkersRequest, pending: Sequence[Future[None]]) -> WriteTxnMarkersResponse:
    return _response_of(request, map(_code, pending))


def _code(pending: Future[None]) -> ErrorCode:
    try:
        pending.result()
    except CoordinatorError as error:
        cause = error.__cause__
        code = error_code_of(cause if isinstance(cause, EngineError) else error)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _OF_A_COORDINATOR else code
    return ErrorCode.NONE


def _response_of(request: WriteTxnMarkersRequest, codes: Iterator[ErrorCode]) -> WriteTxnMarkersResponse:
    """The response, by producer. A producer that is named twice has one entry, as in Kafka."""
    by_producer: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for one in request.markers:
        topics = by_producer.setdefault(one.producer_id, {})
        for each in _partitions(one):
            topics.setdefault(each.topic, {})[each.number] = next(codes)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
                            for number, code in rows.items()
                        ],
                    )
                    for name, rows in topics.items()
                ],
            )
            for producer_id, topics in by_producer.items()
        ]
    )


API = Api("write_txn_markers", WriteTxnMarkersRequest, handle, refuse, 1, 2, two_stage=True)
