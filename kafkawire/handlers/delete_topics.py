"""DeleteTopics, key 20: topics by name, from version 6 on also by id.

Behavior:
- A topic that is named twice, by name, by id or by both, is INVALID_REQUEST and stays. Each other topic is deleted by
  itself; after success it is gone from Metadata.
- Only clients with DESCRIBE see the name of a topic given by id. A topic given by name that may not be described is
  refused, existing or not.
- The timeout works as in CreateTopics. With `delete.topic.enable` off every topic gets TOPIC_DELETION_DISABLED
  (INVALID_REQUEST up to version 2). After Kafka's ControllerApis.

Version notes: 5 error messages, 6 topic ids (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import trio

from coordinator.errors import CoordinatorError
from kafkawire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.wire.primitives import ZERO_UUID

FIRST_VERSION_WITH_DISABLED: Final = 3
# Kafka's text: tools and people search for it.
UNKNOWN_ID_TEXT: Final = "This server does not host this topic ID."
UNKNOWN_NAME_TEXT: Final = "This server does not host this topic-partition."


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete one topic after the other."""
    asked = _requested_topics(request)
    if not context.broker.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST
        if context.api_version >= FIRST_VERSION_WITH_DISABLED:
            code = ErrorCode.TOPIC_DELETION_DISABLED
        return DeleteTopicsResponse(responses=[_row(one, code, "Topic deletion is disabled.") for one in asked])
    deadline = trio.current_time() + max(0, request.timeout_ms) / 1000
    times_named = Counter(_identity(context, one) for one in asked)
    response = DeleteTopicsResponse(responses=[])
    for one in {_identity(context, one): one for one in asked}.values():
        row = _check(context, one, times_named[_identity(context, one)])
        if row is None and trio.current_time() >= deadline:
            row = _row(one, ErrorCode.REQUEST_TIMED_OUT, None)
        response.responses.append(row or await _delete(context, one))
    return response


def refuse(context: RequestContext, request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Refuse every topic."""
    return DeleteTopicsResponse(responses=[_row(one, code, None) for one in _requested_topics(request)])


def _requested_topics(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names), *request.topics]


def _identity(context: RequestContext, asked: DeleteTopicState) -> tuple[str | None, bytes]:
    """Key of a topic, equal for its name and its id, if the client may know that they are the same topic."""
    if asked.name is not None and asked.topic_id == ZERO_UUID and _may(context, Operation.DELETE, asked.name):
        topic = context.broker.cluster.image.topics.get(asked.name)
        if topic is not None:
            return None, topic.topic_id
    return asked.name, asked.topic_id


def _check(context: RequestContext, asked: DeleteTopicState, times_named: int) -> DeletableTopicResult | None:
    """The refusal of a topic, or None."""
    if asked.name is None and asked.topic_id == ZERO_UUID:
        return _row(asked, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        return _row(asked, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times_named > 1:
        return _row(asked, ErrorCode.INVALID_REQUEST, "Duplicate topic name or topic id.")
    image = context.broker.cluster.image
    name = asked.name
    if name is None:
        topic = image.topics_by_id.get(asked.topic_id)
        if topic is None:
            return _row(asked, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID_TEXT)
        name = topic.name
    if not _may(context, Operation.DELETE, name):
        row = _row(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        if asked.name is None and _may(context, Operation.DESCRIBE, name):
            row.name = name
        return row
    if name not in image.topics:
        return _row(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_NAME_TEXT)
    return None


async def _delete(context: RequestContext, asked: DeleteTopicState) -> DeletableTopicResult:
    try:
        deleted = await context.broker.cluster.delete_topic(asked.topic_id if asked.name is None else asked.name)
    except CoordinatorError as error:
        return _row(asked, error_code_of(error), str(error) or None)
    context.broker.metrics.by_topic.pop(deleted.name, None)
    return DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id)


def _may(context: RequestContext, operation: Operation, name: str) -> bool:
    return context.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME) or context.authorize(
        operation, ResourceType.TOPIC, name
    )


def _row(asked: DeleteTopicState, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message)


API = Api("delete_topics", DeleteTopicsRequest, handle, refuse, 1, 6)
