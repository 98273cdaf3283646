"""Metadata, key 3: topics, leaders of their partitions, and addresses of brokers.

Behavior:
- No topics named: all of them (null; in version 0 an empty list). An empty list from version 1 on: brokers only.
- A topic that does not exist is created when the client and `auto.create.topics.enable` allow it, with the broker's
  defaults. Kafka answers "unknown" while it creates; here creation is awaited and the topic is in the reply. Internal
  topics are never created this way: they have partition counts of their own.
- A topic that the client may not describe is not disclosed: it is left out of "all", and refused by name, existing or
  not.
- Brokers that were up a moment ago are still listed, but lead nothing: see `departed`.
- Addresses are those of the listener of the request. `topic_rows` makes and keeps the rows of partitions. After Kafka's
  KRaftMetadataCache.

Version notes: 1 controller, 2 cluster id, 4 allow_auto_topic_creation, 5 offline replicas, 7 leader epoch, 8 authorized
operations (KIP-430; of the cluster up to 10), 10 topic ids, 12 topics by id (KIP-516), 13 top-level error (KIP-1102).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from coordinator.api import INTERNAL_TOPICS, TopicInfo
from coordinator.errors import CoordinatorError, TopicExists
from kafkawire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kafkawire.requests.api import Api
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import CREATED_PARTITIONS_MAX, is_legal_topic_name
from kafkawire.requests.topic_rows import OPERATIONS_NOT_ASKED, PARTITIONS_PER_TURN, ClientTraits, encode_row
from kafkawire.wire.plan_encode import EncodedElements
from kafkawire.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIRST_VERSION_WITH_OPERATIONS: Final = 8
LAST_VERSION_WITH_CLUSTER_OPERATIONS: Final = 10
FIRST_VERSION_BY_ID: Final = 12
NAMES_PER_TURN: Final = 500
TOPICS_PER_TURN: Final = 500
METADATA_AWAY: Final = ErrorCode.REQUEST_TIMED_OUT  # the code of MetadataUnavailable: clients try again


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Answer from one image, taken after missing topics are created.

    Large responses take turns: if a hundred clients ask at once, each gets its response in a turn of the event loop,
    with other requests in between.
    """
    if _names_topics_wrongly(context, request):
        refused = [_refused(topic, ErrorCode.INVALID_REQUEST) for topic in request.topics or []]
        return MetadataResponse(brokers=[], topics=refused)
    turns = context.broker.topic_rows.turns
    if _asks_for_all(context, request):
        async with turns:
            return await _respond(context, request, _all_described(context))
    if any(topic.topic_id != ZERO_UUID for topic in request.topics or ()):
        ids = dict.fromkeys(topic.topic_id for topic in request.topics or () if topic.topic_id != ZERO_UUID)
        found = [_by_id(context, topic_id) for topic_id in ids]
    else:
        names = dict.fromkeys(topic.name for topic in request.topics or () if topic.name is not None)
        found = await _by_names(context, request, names)
    if not _is_large(found):
        return await _respond(context, request, found)
    async with turns:
        return await _respond(context, request, found)


def refuse(context: RequestContext, request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Refuse every named topic; of a request for all topics only newer clients see the error."""
    return MetadataResponse(
        error_code=code, brokers=[], topics=[_refused(topic, code) for topic in request.topics or ()]
    )


def _is_large(found: Sequence[TopicInfo | MetadataResponseTopic]) -> bool:
    return len(found) > TOPICS_PER_TURN or sum(len(topic.partitions) for topic in found) > PARTITIONS_PER_TURN


def _all_described(context: RequestContext) -> list[TopicInfo | MetadataResponseTopic]:
    return [
        topic
        for topic in context.broker.cluster.image.topics.values()
        if context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]


def _asks_for_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _names_topics_wrongly(context: RequestContext, request: MetadataRequest) -> bool:
    """Whether topics are named by null names or ids in versions 10 and 11, which do not support them (KAFKA-12701)."""
    return context.api_version < FIRST_VERSION_BY_ID and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ()
    )


def _by_id(context: RequestContext, topic_id: bytes) -> TopicInfo | MetadataResponseTopic:
    topic = context.broker.cluster.image.topics_by_id.get(topic_id)
    if topic is None:
        return _error_row(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return _error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return topic


async def _by_names(
    context: RequestContext, request: MetadataRequest, names: Iterable[str]
) -> list[TopicInfo | MetadataResponseTopic]:
    """Topics by name. Missing ones are created, no more partitions than in one CreateTopics request.

    The client asks again for the rest. If the metadata store is away, only the first name waits for it, and all are
    refused.
    """
    config = context.broker.config
    may_create = config.auto_create_topics_enable and request.allow_auto_topic_creation
    creations_left = CREATED_PARTITIONS_MAX // config.num_partitions if may_create else 0
    found: list[TopicInfo | MetadataResponseTopic] = []
    is_away = False
    for count, name in enumerate(names, 1):
        row = _by_name(context, name)
        if row is None and creations_left > 0:
            creations_left -= 1
            row = _error_row(METADATA_AWAY, name) if is_away else await _create(context, name)
            is_away = isinstance(row, MetadataResponseTopic) and row.error_code == METADATA_AWAY
        found.append(row or _error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
        if count % NAMES_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    return found


def _by_name(context: RequestContext, name: str) -> TopicInfo | MetadataResponseTopic | None:
    """The topic or its refusal; None if it does not exist and may be created."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return _error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    topic = context.broker.cluster.image.topics.get(name)
    if topic is not None:
        return topic
    if not is_legal_topic_name(name):
        return _error_row(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    return None


async def _create(context: RequestContext, name: str) -> TopicInfo | MetadataResponseTopic:
    may_create = context.authorize(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or context.authorize(
        Operation.CREATE, ResourceType.TOPIC, name
    )
    if not may_create:
        return _error_row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if name in INTERNAL_TOPICS:
        return _error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    cluster = context.broker.cluster
    try:
        return await cluster.create_topic(name)
    except TopicExists:  # another request has created it
        return cluster.image.topics.get(name) or _error_row(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    except CoordinatorError as error:
        return _error_row(error_code_of(error), name)


async def _respond(
    context: RequestContext, request: MetadataRequest, found: list[TopicInfo | MetadataResponseTopic]
) -> MetadataResponse:
    image = context.broker.cluster.image
    endpoints = context.endpoints(context.broker.departed.listed(image, trio.current_time()))
    reachable = frozenset(broker.broker_id for broker, _, _ in endpoints if broker.broker_id in image.brokers)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=host, port=port, rack=broker.rack)
            for broker, host, port in endpoints
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=await _rows(context, request, found, reachable),
    )
    if request.include_cluster_authorized_operations and context.api_version <= LAST_VERSION_WITH_CLUSTER_OPERATIONS:
        allowed = context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = (
            context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME) if allowed else 0
        )
    return response


async def _rows(
    context: RequestContext,
    request: MetadataRequest,
    found: list[TopicInfo | MetadataResponseTopic],
    reachable: frozenset[int],
) -> EncodedElements:
    """Rows of the topics; those of existing topics come from the broker's `TopicRows`."""
    version = context.api_version
    kept = context.broker.topic_rows
    traits = ClientTraits(version, frozenset(context.broker.cluster.image.brokers), reachable)
    asks_operations = request.include_topic_authorized_operations and version >= FIRST_VERSION_WITH_OPERATIONS
    rows = EncodedElements()
    for count, topic in enumerate(found, 1):
        if isinstance(topic, MetadataResponseTopic):
            rows.append(encode_row(topic, version))
            continue
        operations = (
            context.authorized_operations(ResourceType.TOPIC, topic.name) if asks_operations else OPERATIONS_NOT_ASKED
        )
        rows.append(kept.find(topic, traits, operations) or await kept.make(topic, traits, operations))
        if count % TOPICS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    return rows


def _error_row(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )


def _refused(topic: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    """Row of a refused topic. MetadataRequest.getErrorResponse cannot leave a name null, either."""
    return MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])


API = Api("metadata", MetadataRequest, handle, refuse, 0, 13)
