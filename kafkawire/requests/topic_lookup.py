"""Lookup of topics, partition logs and leaders elsewhere, by the names of a client.

Shared by the handlers, which never import each other. It returns error codes instead of exceptions: a partition that is
not here is common.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.api import NO_LEADER
from engine.api import NO_EPOCH, TopicIdPartition
from engine.errors import EngineError
from kafkawire.requests.context import Operation, ResourceType
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from coordinator.api import ClusterImage, TopicInfo
    from engine.api import PartitionLog, PartitionStore
    from kafkawire.requests.context import RequestContext

MAX_TOPIC_NAME_LENGTH: Final = 249
CREATED_PARTITIONS_MAX: Final = 10_000  # in one request (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


class Leader(NamedTuple):
    """A KIP-951 hint: the leader of a partition, as this broker knows it. `host` is None if it is not reachable."""

    broker_id: int
    epoch: int
    host: str | None = None
    port: int = -1
    rack: str | None = None


def is_legal_topic_name(name: str) -> bool:
    """Whether a topic may have this name (Kafka's Topic.validate)."""
    return len(name) <= MAX_TOPIC_NAME_LENGTH and name not in (".", "..") and _LEGAL_NAME.fullmatch(name) is not None


def find_topic(
    context: RequestContext, image: ClusterImage, operation: Operation, name: str, topic_id: bytes | None = None
) -> TopicInfo | ErrorCode:
    """The topic with this name, or with this id if given, if the client may do the operation with it."""
    if topic_id is None:
        found = image.topics.get(name)
    else:
        found = image.topics_by_id.get(topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    if not context.authorize(operation, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found


def find_log(store: PartitionStore, topic: TopicInfo, partition: int) -> PartitionLog | ErrorCode:
    """The log of one partition of a known topic."""
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        return store.get(TopicIdPartition(topic.topic_id, topic.name, partition))
    except EngineError as error:
        return error_code_of(error)


def high_watermark(store: PartitionStore, image: ClusterImage, topic: str, partition: int) -> int | None:
    """High watermark of a partition that this broker leads, else None."""
    info = image.topics.get(topic)
    log = find_log(store, info, partition) if info is not None else None
    return None if log is None or isinstance(log, ErrorCode) else log.high_watermark


def current_leader(context: RequestContext, topic: str, partition: int) -> Leader:
    """The hint for a client that asked the wrong broker."""
    image = context.broker.cluster.image
    state = image.partition(topic, partition)
    if state is None:
        return Leader(NO_LEADER, NO_EPOCH)
    broker = image.brokers.get(state.leader)
    endpoint = context.endpoint_of(broker) if broker is not None else None
    if broker is None or endpoint is None:
        return Leader(state.leader, state.leader_epoch)
    return Leader(state.leader, state.leader_epoch, *endpoint, broker.rack)
