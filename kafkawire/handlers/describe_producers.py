"""DescribeProducers, key 61: the active idempotent and transactional producers of partitions (KIP-664).

Behavior:
- Each partition has its own result. An illegal topic name is INVALID_TOPIC_EXCEPTION, before READ is checked. A
  partition with another leader is NOT_LEADER_OR_FOLLOWER.
- A producer with an open transaction has its first offset. A producer that has ended one has the coordinator epoch of
  the marker. After KafkaApis.handleDescribeProducersRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.api import TopicIdPartition
from engine.errors import EngineError
from kafkawire.handlers.common.repeats import check_repeats
from kafkawire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import find_topic, is_legal_topic_name

if TYPE_CHECKING:
    from coordinator.api import TopicInfo

TEXTS: Final = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Describe one partition after the other."""
    check_repeats([(topic.name, partition) for topic in request.topics for partition in topic.partition_indexes])
    rows = []
    for topic in request.topics:
        found = _find_topic(context, topic.name)
        partitions = [_describe(context, found, partition) for partition in topic.partition_indexes]
        rows.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=rows)


def refuse(context: RequestContext, request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    """Refuse every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[PartitionResponse(partition_index=one, error_code=code) for one in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _find_topic(context: RequestContext, name: str) -> TopicInfo | ErrorCode:
    if not is_legal_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return find_topic(context, context.broker.cluster.image, Operation.READ, name)


def _describe(context: RequestContext, topic: TopicInfo | ErrorCode, partition: int) -> PartitionResponse:
    row = PartitionResponse(partition_index=partition)
    if isinstance(topic, ErrorCode):
        row.error_code, row.error_message = topic, TEXTS[topic]
    elif not 0 <= partition < len(topic.partitions):
        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        try:
            found = context.broker.store.active_producers(TopicIdPartition(topic.topic_id, topic.name, partition))
        except EngineError as error:
            row.error_code = error_code_of(error)
        else:
            row.active_producers = [
                ProducerState(
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                    last_sequence=one.last_sequence,
                    last_timestamp=one.last_timestamp_ms,
                    coordinator_epoch=one.coordinator_epoch,
                    current_txn_start_offset=one.transaction_from,
                )
                for one in found
            ]
    return row


API = Api("describe_producers", DescribeProducersRequest, handle, refuse, 0, 0)
