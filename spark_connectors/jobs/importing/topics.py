"""Topics of both sides: their description, and the creation of a missing target."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from spark_connectors.jobs.importing.errors import ImportRefused
from spark_connectors.jobs.importing.sides import Side, Span
from spark_connectors.source.bounds import Places
from spark_connectors.source.options import Edge, SourceOptions
from spark_connectors.wire import FIRST_CONTACT_S, BrokerError, Cluster, ErrorCode, TopicPartition
from spark_connectors.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatedTopic,
    CreateTopicsRequest,
    TopicConfig,
    TopicToCreate,
)
from spark_connectors.wire.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    OF_TOPIC,
    TOPIC,
    DescribeConfigsRequest,
    DescribedConfig,
    ResourceToDescribe,
)

POLICY: Final = "cleanup.policy"
_CREATE_TIMEOUT_MS: Final = 30_000
_log = logging.getLogger(__name__)


class Topic(NamedTuple):
    """A topic: its partitions, and its configs."""

    side: Side
    configs: Mapping[str, str]
    is_compacted: bool


def cluster_of(options: SourceOptions) -> Cluster:
    """Client of a cluster. `with` closes it."""
    return Cluster(options.bootstrap, options.settings, first_contact_s=FIRST_CONTACT_S)


def look_up(cluster: Cluster, options: SourceOptions, topic: str) -> Topic | None:
    """Describe a topic; None: it does not exist. Raises ImportRefused for an internal topic, and WireError."""
    found = cluster.topics([topic]).get(topic)
    if found is None:
        return None
    if found.is_internal:
        raise ImportRefused(f"{topic} is written by brokers alone")
    places = [TopicPartition(topic, row.partition_index) for row in found.partitions]
    known = Places(cluster, options)
    starts = known.list_offsets(dict.fromkeys(places, Edge.EARLIEST))
    ends = known.list_offsets(dict.fromkeys(places, Edge.LATEST))
    spans = {place.partition: Span(starts[place], ends[place]) for place in sorted(places)}
    described = _configs(cluster, topic)
    own = {one.name: one.value for one in described if one.config_source == OF_TOPIC and one.value is not None}
    policies = [one.value or "" for one in described if one.name == POLICY]
    return Topic(Side(topic, found.topic_id, spans), own, any("compact" in policy for policy in policies))


def _configs(cluster: Cluster, topic: str) -> list[DescribedConfig]:
    """Configs of a topic without sensitive ones. Raises WireError."""
    wanted = ResourceToDescribe(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    reply = cluster.at_any_broker(
        DESCRIBE_CONFIGS,
        DescribeConfigsRequest(resources=(wanted,)),
        lambda reply: [one.error_code for one in reply.results],
    )
    (found,) = reply.results
    if found.error_code:
        raise BrokerError(found.error_code, f"configs of topic {topic}", found.error_message)
    return [one for one in found.configs if not one.is_sensitive]


def create(cluster: Cluster, topic: str, partitions: int, configs: Mapping[str, str]) -> list[str]:
    """Create a topic. Returns the names of configs that the target refuses; they are left out. Raises WireError."""
    taken = dict(configs)
    refused = _send_create(cluster, topic, partitions, taken, validates_only=True)
    if refused.error_code == ErrorCode.INVALID_CONFIG:
        taken = {
            name: value
            for name, value in configs.items()
            if not _send_create(cluster, topic, partitions, {name: value}, validates_only=True).error_code
        }
    created = _send_create(cluster, topic, partitions, taken, validates_only=False)
    if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise BrokerError(created.error_code, f"topic {topic}", created.error_message)
    left_out = sorted(configs.keys() - taken.keys())
    for name in left_out:
        _log.warning("%s: the target refuses %s=%s of the source", topic, name, configs[name])
    return left_out


def _send_create(
    cluster: Cluster, topic: str, partitions: int, configs: Mapping[str, str], *, validates_only: bool
) -> CreatedTopic:
    rows = tuple(TopicConfig(name=name, value=value) for name, value in sorted(configs.items()))
    request = CreateTopicsRequest(
        topics=(TopicToCreate(name=topic, num_partitions=partitions, configs=rows),),
        timeout_ms=_CREATE_TIMEOUT_MS,
        validate_only=validates_only,
    )
    (found,) = cluster.at_any_broker(
        CREATE_TOPICS, request, lambda reply: [one.error_code for one in reply.topics]
    ).topics
    return found
