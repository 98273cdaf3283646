"""Metadata, key 3: which topics there are, who leads their partitions, and where the brokers are.

Behavior:
- No topics named: all of them (null; in version 0 an empty list). An empty list from version 1 on: brokers only.
- A topic that does not exist is created when the client and `auto.create.topics.enable` allow it, with the broker's
  defaults. Kafka answers "unknown" while it creates; here creation is awaited and the topic is in the reply. Internal
  topics are never created this way: they have counts of their own.
- A topic the client may not describe is not disclosed: left out of "all", refused by name as if it existed or not.
- Brokers that were up a moment ago are still listed, but lead nothing: see `departed`.
- Addresses are those of the listener the request came in on; what it shows of the partitions' leaders is said by
  `topic_rows`, where the rows are kept. After Kafka's KRaftMetadataCache.

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
from kafkawire.requests.context import CLUSTER_NAME, Operation, RequestContext, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of
from kafkawire.requests.topic_lookup import CREATED_PARTITIONS_MAX, is_legal_topic_name
from kafkawire.requests.topic_rows import OPERATIONS_NOT_ASKED, PARTITIONS_PER_TURN, Sight, encode_row
from kafkawire.wire.plan_encode import EncodedElements
from kafkawire.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIRST_VERSION_WITH_OPERATIONS: Final = 8
LAST_VERSION_WITH_CLUSTER_OPERATIONS: Final = 10
FIRST_VERSION_BY_ID: Final = 12
NAMES_PER_TURN: Final = 500
TOPICS_PER_TURN: Final = 500
METADATA_AWAY: Final = ErrorCode.REQUEST_TIMED_OUT  # what MetadataUnavailable is to a client: it tries again


async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Answers from one image, taken after the topics that are to be created have been. Large answers take turns: of a
    hundred clients that ask at once each gets its own in a turn of the loop, with others' requests in between."""
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
    """Every topic that is named; of the rest only newer clients hear."""
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
    """Versions 10 and 11 have the fields for topic ids and null names but no meaning for them (KAFKA-12701)."""
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
    """Creates no more partitions than a request to create topics may; the client asks again for the rest. If the
    metadata are away, the first name has waited for all: the rest is refused alike."""
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
    """None for a topic that does not exist and could."""
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
    except TopicExists:  # somebody else was faster
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
    """Those of topics come from the broker's `TopicRows`."""
    version = context.api_version
    kept = context.broker.topic_rows
    seen = Sight(version, frozenset(context.broker.cluster.image.brokers), reachable)
    asks_operations = request.include_topic_authorized_operations and version >= FIRST_VERSION_WITH_OPERATIONS
    rows = EncodedElements()
    for count, topic in enumerate(found, 1):
        if isinstance(topic, MetadataResponseTopic):
            rows.append(encode_row(topic, version))
            continue
        operations = (
            context.authorized_operations(ResourceType.TOPIC, topic.name) if asks_operations else OPERATIONS_NOT_ASKED
        )
        rows.append(kept.find(topic, seen, operations) or await kept.make(topic, seen, operations))
        if count % TOPICS_PER_TURN == 0:
            await trio.lowlevel.checkpoint()
    return rows


def _error_row(code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )


def _refused(topic: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    """As MetadataRequest.getErrorResponse, which cannot leave a name null."""
    return MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
