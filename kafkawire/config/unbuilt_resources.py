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


GROUP_KEYS: Final = (
    UnbuiltKey("consumer.assignment.interval.ms", "1000", INT, "How long assignments of a group are kept apart."),
    UnbuiltKey("consumer.heartbeat.interval.ms", "5000", INT, "How often members are to send heartbeats."),
    UnbuiltKey("consumer.session.timeout.ms", "45000", INT, "After how long without heartbeats a member is removed."),
    UnbuiltKey("share.assignment.interval.ms", "1000", INT, "How long assignments of a share group are kept apart."),
    UnbuiltKey(
        "share.auto.offset.reset",
        "latest",
        STRING,
        "Where a share group begins to read a partition.",
        has_broker_key=False,
    ),
    UnbuiltKey("share.delivery.count.limit", "5", INT, "How often a record is delivered at most."),
    UnbuiltKey(
        "share.heartbeat.interval.ms", "5000", INT, "How often members of a share group are to send heartbeats."
    ),
    UnbuiltKey(
        "share.isolation.level",
        "read_uncommitted",
        STRING,
        "Whether records of open and aborted transactions are delivered.",
        has_broker_key=False,
    ),
    UnbuiltKey(
        "share.partition.max.record.locks", "2000", INT, "How many records of a partition can be acquired at once."
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
        "share.session.timeout.ms", "45000", INT, "After how long without heartbeats a share group's member is removed."
    ),
    UnbuiltKey(
        "streams.assignment.interval.ms", "1000", INT, "How long assignments of a streams group are kept apart."
    ),
    UnbuiltKey(
        "streams.heartbeat.interval.ms", "5000", INT, "How often members of a streams group are to send heartbeats."
    ),
    UnbuiltKey(
        "streams.initial.rebalance.delay.ms", "3000", INT, "How long a new streams group waits for more members."
    ),
    UnbuiltKey("streams.num.standby.replicas", "0", INT, "How many standby replicas a task of a streams group has."),
    UnbuiltKey(
        "streams.session.timeout.ms",
        "45000",
        INT,
        "After how long without heartbeats a streams group's member is removed.",
    ),
)
CLIENT_METRICS_KEYS: Final = (
    UnbuiltKey("interval.ms", "300000", INT, "How often clients are to send metrics."),
    UnbuiltKey("match", "", LIST, "Which clients are to send metrics."),
    UnbuiltKey("metrics", "", LIST, "Which metrics clients are to send."),
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
    name = f"group.{key.name}" if key.has_broker_key else key.name
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
