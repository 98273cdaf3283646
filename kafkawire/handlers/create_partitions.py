"""CreatePartitions, key 37: more partitions for existing topics (KIP-195).

Behavior:
- Each topic has its own result; after success the new partitions can be used. A topic that is named twice is refused
  once and does not change.
- The timeout works as in CreateTopics. A request for more than 10,000 new partitions is refused as a whole.
- The control plane checks and adds. After Kafka's ControllerApis and ReplicationControlManager.

Version notes: 2 flexible, 3 quotas, which do not exist here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio

from coordinator.errors import CoordinatorError, UnknownTopic
from kafkawire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import CREATED_PARTITIONS_MAX

if TYPE_CHECKING:
    from coordinator.api import ClusterImage


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Add the partitions of one topic after the other."""
    deadline = trio.current_time() + max(0, request.timeout_ms) / 1000
    times_named = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse(results=[])
    if _partition_count(context.broker.cluster.image, request) > CREATED_PARTITIONS_MAX:
        text = "Excessively large number of partitions per request."
        response.results = [_row(name, ErrorCode.POLICY_VIOLATION, text) for name in times_named]
        return response
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        if times_named[name] > 1:
            row = _row(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif not context.authorize(Operation.ALTER, ResourceType.TOPIC, name):
            row = _row(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif trio.current_time() >= deadline:
            row = _row(name, ErrorCode.REQUEST_TIMED_OUT)
        else:
            row = await _grow(context, topic, validate_only=request.validate_only)
        response.results.append(row)
    return response


def refuse(context: RequestContext, request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Refuse every topic."""
    return CreatePartitionsResponse(results=[_row(topic.name, code) for topic in request.topics])


def _partition_count(image: ClusterImage, request: CreatePartitionsRequest) -> int:
    """The number of new partitions over all topics of the request."""
    known = ((topic.count, image.topics.get(topic.name)) for topic in request.topics)
    return sum(max(0, count - len(topic.partitions)) for count, topic in known if topic is not None)


async def _grow(
    context: RequestContext, topic: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
    try:
        await context.broker.cluster.create_partitions(
            topic.name, topic.count, assignments=assignments, validate_only=validate_only
        )
    except UnknownTopic as error:
        return _row(topic.name, error_code_of(error))
    except CoordinatorError as error:
        return _row(topic.name, error_code_of(error), str(error) or None)
    return _row(topic.name, ErrorCode.NONE)


def _row(name: str, code: ErrorCode, message: str | None = None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


API = Api("create_partitions", CreatePartitionsRequest, handle, refuse, 0, 3)
