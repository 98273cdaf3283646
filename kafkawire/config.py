"""The broker's configuration: Kafka property names in, one frozen `Config` with units in its names out.

A key that is accepted is enforced. A Kafka key that is not built yet may only be given its default; any other value,
like any bad value, refuses to start with one line that names the key (RULES G1). Keys that steer what this broker does
not have (thread counts, KRaft's quorum) are named warnings, and so are unknown ones. Topic-level keys are in
`topic_config`; this module refuses to know about topics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkawire import config_values as read
from kafkawire.config_values import ConfigError, Listener
from kafkawire.unbuilt_config import HARMLESS_KEYS, UNBUILT_KEYS

__all__ = ["Config", "ConfigError", "Listener", "load", "read_properties"]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MIB = 1024 * 1024
HOUR_MS = 3_600_000


def setting(key: str, default: str, parse: Callable[[str], Any], *aliases: str) -> Any:
    """A field of `Config`: its Kafka key, its default as it would stand in a file, and how it is read."""
    return field(default=parse(default), metadata={"key": key, "default": default, "parse": parse, "aliases": aliases})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a broker runs with. Defaults are Kafka's but for the addresses and directory of a first `make run`."""

    node_id: int = setting("node.id", "1", read.at_least(0, INT_MAX), "broker.id")
    rack: str = setting("broker.rack", "", read.text)
    listeners: tuple[Listener, ...] = setting("listeners", "PLAINTEXT://127.0.0.1:9092", read.listeners)
    advertised_listeners: tuple[Listener, ...] = setting("advertised.listeners", "", read.listeners)
    http_listener: tuple[str, int] | None = setting("http.listeners", "http://127.0.0.1:9644", read.http_address)
    log_dirs: tuple[Path, ...] = setting("log.dirs", "data", read.directories, "log.dir")
    metadata_dir: Path | None = setting("metadata.log.dir", "", lambda value: Path(value) if value else None)
    disk_reject_ratio: float = setting("disk.reject.ratio", "0.95", read.ratio)
    journal_slot_size_bytes: int = setting("journal.slot.bytes", str(32 * MIB), read.at_least(64 * 1024, INT_MAX))
    io_workers: int = setting("io.workers", "2", read.at_least(1, 64))

    num_partitions: int = setting("num.partitions", "1", read.at_least(1, INT_MAX))
    default_replication_factor: int = setting("default.replication.factor", "1", read.at_least(1, 2**15 - 1))
    auto_create_topics_enable: bool = setting("auto.create.topics.enable", "true", read.boolean)
    delete_topic_enable: bool = setting("delete.topic.enable", "true", read.boolean)

    max_message_size_bytes: int = setting("message.max.bytes", "1048588", read.at_least(0, INT_MAX))
    segment_size_bytes: int = setting("log.segment.bytes", "1073741824", read.at_least(1 * MIB, INT_MAX))
    roll_ms: int | None = setting("log.roll.ms", "", read.optional(read.at_least(1, LONG_MAX)))
    roll_hours: int = setting("log.roll.hours", "168", read.at_least(1, INT_MAX))
    roll_jitter_ms: int | None = setting("log.roll.jitter.ms", "", read.optional(read.at_least(0, LONG_MAX)))
    roll_jitter_hours: int = setting("log.roll.jitter.hours", "0", read.at_least(0, INT_MAX))
    segment_index_size_bytes: int = setting("log.index.size.max.bytes", "10485760", read.at_least(4, INT_MAX))
    preallocate: bool = setting("log.preallocate", "false", read.boolean)
    file_delete_delay_ms: int = setting("log.segment.delete.delay.ms", "60000", read.at_least(0, LONG_MAX))
    index_keys: bool = setting("log.index.keys", "false", read.boolean)
    flush_policy: str = setting("log.flush.policy", "sync", read.choice("sync", "async"))
    flush_messages: int = setting("log.flush.interval.messages", str(LONG_MAX), read.at_least(1, LONG_MAX))
    flush_interval_ms: int = setting("log.flush.interval.ms", str(LONG_MAX), read.at_least(0, LONG_MAX))
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms", "86400000", read.at_least(1, INT_MAX))
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", "600000", read.at_least(1, INT_MAX)
    )
    min_insync_replicas: int = setting("min.insync.replicas", "1", read.at_least(1, INT_MAX))
    timestamp_type: str = setting(
        "log.message.timestamp.type", "CreateTime", read.choice("CreateTime", "LogAppendTime")
    )
    timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms", str(LONG_MAX), read.at_least(0, LONG_MAX)
    )
    timestamp_after_max_ms: int = setting("log.message.timestamp.after.max.ms", "3600000", read.at_least(0, LONG_MAX))

    group_session_timeout_min_ms: int = setting("group.min.session.timeout.ms", "6000", read.at_least(1, INT_MAX))
    group_session_timeout_max_ms: int = setting("group.max.session.timeout.ms", "1800000", read.at_least(1, INT_MAX))
    group_members_max: int = setting("group.max.size", str(INT_MAX), read.at_least(1, INT_MAX))
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", "3000", read.at_least(0, INT_MAX)
    )
    offset_metadata_max_length: int = setting("offset.metadata.max.bytes", "4096", read.at_least(0, INT_MAX))
    offsets_retention_minutes: int = setting("offsets.retention.minutes", "10080", read.at_least(1, INT_MAX))
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", "600000", read.at_least(1, LONG_MAX)
    )
    offsets_topic_partitions: int = setting("offsets.topic.num.partitions", "50", read.at_least(1, INT_MAX))
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", "3", read.at_least(1, 2**15 - 1)
    )
    offsets_topic_segment_size_bytes: int = setting(
        "offsets.topic.segment.bytes", str(100 * MIB), read.at_least(1 * MIB, INT_MAX)
    )
    offsets_view_mode: str = setting("offsets.view.mode", "cached", read.choice("cached", "direct"))
    offsets_view_flush_interval_ms: int = setting("offsets.view.flush.interval.ms", "100", read.at_least(1, INT_MAX))

    max_fetch_size_bytes: int = setting("fetch.max.bytes", str(55 * MIB), read.at_least(1024, INT_MAX))
    fetch_session_slots: int = setting("max.incremental.fetch.session.cache.slots", "1000", read.at_least(0, INT_MAX))

    max_request_size_bytes: int = setting("socket.request.max.bytes", str(100 * MIB), read.at_least(1, INT_MAX))
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", str(512 * MIB), read.at_least_or_unlimited(1 * MIB, LONG_MAX)
    )
    max_connections: int = setting("max.connections", str(INT_MAX), read.at_least(0, INT_MAX))
    max_connections_per_ip: int = setting("max.connections.per.ip", str(INT_MAX), read.at_least(0, INT_MAX))
    connections_max_idle_ms: int = setting("connections.max.idle.ms", "600000", read.at_least_or_unlimited(1, LONG_MAX))

    @property
    def segment_age_ms(self) -> int:
        """When a segment is rolled; milliseconds go before hours."""
        return self.roll_hours * HOUR_MS if self.roll_ms is None else self.roll_ms

    @property
    def segment_jitter_ms(self) -> int:
        """How much earlier, at most."""
        return self.roll_jitter_hours * HOUR_MS if self.roll_jitter_ms is None else self.roll_jitter_ms

    def advertised(self, name: str) -> Listener | None:
        """The advertised listener called `name`, or None: then the address of the accepted socket is advertised."""
        return next((listener for listener in self.advertised_listeners if listener.name == name), None)


def read_properties(content: str) -> dict[str, str]:
    """Java's .properties as Kafka's files use it: `key=value` or `key: value`, # and ! comments, \\ at a line's end."""
    found: dict[str, str] = {}
    begun = ""
    for raw in [*content.splitlines(), ""]:
        line = begun + raw.lstrip()
        if not line or line[0] in "#!":
            continue  # a comment ends with its line, whatever stands at the end
        if line.endswith("\\"):
            begun = line[:-1]
            continue
        begun = ""
        cuts = [at for at in (line.find("="), line.find(":")) if at > 0]
        if not cuts:
            raise ConfigError(f"not a key=value line: {line[:80]}")
        at = min(cuts)
        found[line[:at].strip()] = line[at + 1 :].strip()
    return found


def load(properties: Mapping[str, str]) -> tuple[Config, list[str]]:
    """Reads properties into a Config and a list of warnings.

    Errors: ConfigError, one line naming the key, for a bad value or a value that is not built yet.
    """
    known = _fields_by_key()
    values: dict[str, Any] = {}
    warnings: list[str] = []
    older_names = {alias for one in dataclasses.fields(Config) for alias in one.metadata["aliases"]}
    for key, value in sorted(properties.items(), key=lambda item: item[0] not in older_names):
        if key in known:
            name, parse = known[key]
            values[name] = _parse(key, value, parse)
        elif key in UNBUILT_KEYS:
            if value != UNBUILT_KEYS[key]:
                raise ConfigError(f"{key}={value}: not supported yet, only {key}={UNBUILT_KEYS[key]}")
        elif key in HARMLESS_KEYS:
            warnings.append(f"{key} has no effect here: {HARMLESS_KEYS[key]}")
        elif key.startswith(("sasl.", "ssl.", "listener.name.")):
            raise ConfigError(f"{key}: SASL and SSL are not supported yet")
        else:
            warnings.append(f"{key} is not a key of this broker")
    config = Config(**values)
    _check(config)
    return config, warnings


def _fields_by_key() -> dict[str, tuple[str, Callable[[str], Any]]]:
    found = {}
    for one in dataclasses.fields(Config):
        for key in (one.metadata["key"], *one.metadata["aliases"]):
            found[key] = (one.name, one.metadata["parse"])
    return found


def _parse(key: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value.strip())
    except ValueError as error:
        raise ConfigError(f"{key}={value}: {error}") from None


def _check(config: Config) -> None:
    """What no single key can tell."""
    if config.group_session_timeout_min_ms > config.group_session_timeout_max_ms:
        raise ConfigError("group.min.session.timeout.ms is greater than group.max.session.timeout.ms")
    names = {listener.name for listener in config.listeners}
    if not config.listeners:
        raise ConfigError("listeners: at least one is needed")
    for listener in config.advertised_listeners:
        if listener.name not in names:
            raise ConfigError(f"advertised.listeners: {listener.name} is not among listeners")
        if listener.host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, never bound
            raise ConfigError(f"advertised.listeners: {listener.name} needs an address clients can reach")
