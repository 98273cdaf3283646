"""Topic-level configuration: which keys there are, what they default to, and which values a topic may have.

The same promise as for the broker's keys (RULES G1): an accepted key is enforced, a key that is not built yet may only
be given its default, an unknown one is refused as Kafka refuses it. Order and names are Kafka's TopicConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from coordinator.api import INTERNAL_TOPICS
from coordinator.errors import InvalidConfig
from engine.api import FlushPolicy, LogConfig, TimestampType
from kafkawire.config import INT_MAX, LONG_MAX, MIB, Config
from kafkawire.config_values import at_least, boolean, choice
from kafkawire.context import ConfigEntry, ConfigSource


@dataclass(frozen=True, slots=True)
class TopicKey:
    """One key a topic may set: how its value is read, and the field of `Config` it defaults to."""

    parse: Callable[[str], Any]
    config_field: str


DEFAULTS: Final = Config()

TOPIC_KEYS: Final[dict[str, TopicKey]] = {
    "file.delete.delay.ms": TopicKey(at_least(0, LONG_MAX), "file_delete_delay_ms"),
    "flush.messages": TopicKey(at_least(1, LONG_MAX), "flush_messages"),
    "flush.ms": TopicKey(at_least(0, LONG_MAX), "flush_interval_ms"),
    "flush.policy": TopicKey(choice("sync", "async"), "flush_policy"),
    "index.keys": TopicKey(boolean, "index_keys"),
    "max.message.bytes": TopicKey(at_least(0, INT_MAX), "max_message_size_bytes"),
    "message.timestamp.after.max.ms": TopicKey(at_least(0, LONG_MAX), "timestamp_after_max_ms"),
    "message.timestamp.before.max.ms": TopicKey(at_least(0, LONG_MAX), "timestamp_before_max_ms"),
    "message.timestamp.type": TopicKey(choice("CreateTime", "LogAppendTime"), "timestamp_type"),
    "min.insync.replicas": TopicKey(at_least(1, INT_MAX), "min_insync_replicas"),
    "preallocate": TopicKey(boolean, "preallocate"),
    "segment.bytes": TopicKey(at_least(MIB, INT_MAX), "segment_size_bytes"),
    "segment.index.bytes": TopicKey(at_least(4, INT_MAX), "segment_index_size_bytes"),
    "segment.jitter.ms": TopicKey(at_least(0, LONG_MAX), "segment_jitter_ms"),
    "segment.ms": TopicKey(at_least(1, LONG_MAX), "segment_age_ms"),
}

UNBUILT_TOPIC_KEYS: Final[dict[str, str]] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str(LONG_MAX),
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


COMPACTION: Final = ("cleanup.policy", "compact")
LISTS: Final[dict[str, str]] = {
    "cleanup.policy": "delete",
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
}


class TopicConfigs:
    """Validates and resolves topic configurations against this broker's defaults."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def validate(self, topic: str, configs: Mapping[str, str]) -> None:
        """Raises InvalidConfig, naming the key, unless every key is known and its value may be had."""
        for key, value in configs.items():
            if topic in INTERNAL_TOPICS and (key, value) == COMPACTION:
                continue  # of state that the broker writes and reads itself the newest of each key is enough
            self._read(key, value)

    def validate_broker(self, configs: Mapping[str, str], *, is_default: bool) -> None:
        """No key of the broker can be changed while it runs yet: raises InvalidConfig for any."""
        if configs:
            raise InvalidConfig(f"Cannot update these configs dynamically: {', '.join(sorted(configs))}")

    def list_value(self, key: str) -> str | None:
        """What a list that a topic did not set has; None for a key that is no list."""
        return LISTS.get(key)

    def log_config(self, topic: str, configs: Mapping[str, str]) -> LogConfig:
        """What the engine goes by: a topic's own keys over the broker's defaults. Internal topics are always synced."""
        fields = {one.config_field: getattr(self._config, one.config_field) for one in TOPIC_KEYS.values()}
        for key, value in configs.items():
            if key in TOPIC_KEYS:
                fields[TOPIC_KEYS[key].config_field] = self._read(key, value)
        is_internal = topic in INTERNAL_TOPICS
        fields["flush_policy"] = FlushPolicy.SYNC if is_internal else FlushPolicy(fields["flush_policy"])
        fields["timestamp_type"] = TimestampType(fields["timestamp_type"])
        return LogConfig(**fields)

    def describe(self, configs: Mapping[str, str]) -> list[ConfigEntry]:
        """Every key with its effective value and where it comes from, sorted by key."""
        entries = [ConfigEntry(key, value, ConfigSource.DEFAULT) for key, value in UNBUILT_TOPIC_KEYS.items()]
        for key, one in TOPIC_KEYS.items():
            value = getattr(self._config, one.config_field)
            is_default = value == getattr(DEFAULTS, one.config_field)
            source = ConfigSource.DEFAULT if is_default else ConfigSource.STATIC_BROKER
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            entries.append(ConfigEntry(key, shown, source))
        chosen = (
            ConfigEntry(one.name, configs[one.name], ConfigSource.TOPIC) if one.name in configs else one
            for one in entries
        )
        return sorted(chosen, key=lambda one: one.name)

    def _read(self, key: str, value: str) -> Any:
        if key in TOPIC_KEYS:
            try:
                return TOPIC_KEYS[key].parse(value)
            except ValueError as error:
                raise InvalidConfig(f"Invalid value {value} for configuration {key}: {error}") from None
        if key not in UNBUILT_TOPIC_KEYS:
            raise InvalidConfig(f"Unknown topic config name: {key}")
        if value != UNBUILT_TOPIC_KEYS[key]:
            raise InvalidConfig(f"{key}={value} is not supported yet, only {key}={UNBUILT_TOPIC_KEYS[key]}")
        return value
