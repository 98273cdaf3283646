"""Configs of groups and of clients' metrics: Kafka's keys with their defaults; none has an effect yet.

They belong to group protocols and to telemetry that this broker does not serve. As with topics and brokers (RULES G1) a
key is described with its default, and any other value is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator.api import ConfigOperation
from coordinator.errors import InvalidConfig, InvalidTopicRequest
from kafkawire.config.entries import ConfigEntry, ConfigResourceType, ConfigSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.api import ConfigChange

BOOLEAN: Final = 1
STRING: Final = 2
INT: Final = 3
LIST: Final = 7


class UnbuiltKey(NamedTuple):
    """A key with Kafka's default and the number of Kafka's ConfigType. A group's key may have a broker key, too."""

    name: str
    default: str
    type: int
    documentation: str
    has_broker_key: bool = True
    broker_key: str = ""  # if it is not `group.` and the name


GROUP_KEYS: Final = (
    UnbuiltKey(
        "consumer.assignment.interval.ms", "1000", INT, "The minimum time between two assignments of a consumer group."
    ),
    UnbuiltKey("consumer.heartbeat.interval.ms", "5000", INT, "The heartbeat interval of members."),
    UnbuiltKey(
        "consumer.session.timeout.ms", "45000", INT, "The time without heartbeats after which a member is removed."
    ),
    UnbuiltKey(
        "errors.deadletterqueue.copy.record.enable",
        "false",
        BOOLEAN,
        "Whether a record in the dead-letter queue of a share group has its key, value and headers.",
        has_broker_key=False,
    ),
    UnbuiltKey(
        "errors.deadletterqueue.topic.name",
        "",
        STRING,
        "The topic for records that a share group cannot deliver. Empty: none.",
        has_broker_key=False,
    ),
    UnbuiltKey(
        "share.assignment.interval.ms", "1000", INT, "The minimum time between two assignments of a share group."
    ),
    UnbuiltKey(
        "share.auto.offset.reset",
        "latest",
        STRING,
        "The position at which a share group starts to read a partition.",
        has_broker_key=False,
    ),
    UnbuiltKey("share.delivery.count.limit", "5", INT, "The maximum number of deliveries of a record."),
    UnbuiltKey("share.heartbeat.interval.ms", "5000", INT, "The heartbeat interval of members of a share group."),
    UnbuiltKey(
        "share.isolation.level",
        "read_uncommitted",
        STRING,
        "Whether records of open and aborted transactions are delivered.",
        has_broker_key=False,
    ),
    UnbuiltKey(
        "share.partition.max.record.locks", "2000", INT, "The maximum number of acquired records of a partition."
    ),
    UnbuiltKey("share.record.lock.duration.ms", "30000", INT, "How long a record stays acquired."),
    UnbuiltKey(
        "share.renew.acknowledge.enable",
        "true",
        BOOLEAN,
        "Whether members may ask for more time with a record.",
        has_broker_key=False,
    ),
    UnbuiltKey(
        "share.session.timeout.ms",
        "45000",
        INT,
        "The time without heartbeats after which a member of a share group is removed.",
    ),
    UnbuiltKey(
        "streams.assignment.interval.ms", "1000", INT, "The minimum time between two assignments of a streams group."
    ),
    UnbuiltKey(
        "streams.assignor.name",
        "sticky",
        STRING,
        "The assignor of a streams group.",
        broker_key="group.streams.assignors",
    ),
    UnbuiltKey("streams.heartbeat.interval.ms", "5000", INT, "The heartbeat interval of members of a streams group."),
    UnbuiltKey(
        "streams.initial.rebalance.delay.ms", "3000", INT, "How long a new streams group waits for more members."
    ),
    UnbuiltKey(
        "streams.num.standby.replicas", "0", INT, "The number of standby replicas of a task of a streams group."
    ),
    UnbuiltKey(
        "streams.rack.aware.assignment.tags",
        "",
        LIST,
        "The tags of clients that keep standby replicas of a streams group apart.",
    ),
    UnbuiltKey(
        "streams.session.timeout.ms",
        "45000",
        INT,
        "The time without heartbeats after which a member of a streams group is removed.",
    ),
)
CLIENT_METRICS_KEYS: Final = (
    UnbuiltKey("interval.ms", "300000", INT, "The interval at which clients send metrics."),
    UnbuiltKey("match", "", LIST, "The clients that send metrics."),
    UnbuiltKey("metrics", "", LIST, "The metrics that clients send."),
)
KEYS: Final = {ConfigResourceType.GROUP: GROUP_KEYS, ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS}


def describe_unbuilt(kind: ConfigResourceType) -> list[ConfigEntry]:
    """All keys of such a resource, with their defaults."""
    return [
        ConfigEntry(
            one.name,
            one.default,
            ConfigSource.DEFAULT,
            synonyms=_synonyms(one) if kind is ConfigResourceType.GROUP else (),
            type=one.type,
            documentation=one.documentation,
        )
        for one in KEYS[kind]
    ]


def _synonyms(key: UnbuiltKey) -> tuple[tuple[str, str, ConfigSource], ...]:
    name = (key.broker_key or f"group.{key.name}") if key.has_broker_key else key.name
    return ((name, key.default, ConfigSource.DEFAULT),)


def check_unbuilt(kind: ConfigResourceType, name: str, changes: Sequence[ConfigChange]) -> None:
    """Check that the changes leave all as it is. Raises InvalidConfig or InvalidTopicRequest."""
    defaults = {one.name: one.default for one in KEYS[kind]}
    if not name:
        is_group = kind is ConfigResourceType.GROUP
        raise InvalidTopicRequest(
            "Default group resources are not allowed." if is_group else "Subscription name can't be empty"
        )
    for change in changes:
        if change.key not in defaults:
            if kind is ConfigResourceType.GROUP:
                raise InvalidConfig(f"Unknown group config name: {change.key}")
            raise InvalidTopicRequest(f"Unknown client metrics configuration: {change.key}")
        default = defaults[change.key]
        if change.operation is not ConfigOperation.DELETE and change.value != default:
            raise InvalidConfig(f"{change.key}={change.value} is not supported yet, only {change.key}={default}")
