"""The broker's configuration: from Kafka property names to one frozen `Config` with units in its names.

An accepted key is enforced. A Kafka key that is not built yet may only have its default; any other value, like any bad
value, prevents the start with one line that names the key (RULES G1). Keys about things that this broker lacks (thread
counts, KRaft's quorum) and unknown keys are warnings with their names. Defaults of topics are not in `Config`:
`effective` resolves them from the keys of `topic_config`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kafkawire.config import values as read
from kafkawire.config.cluster_config import ClusterConfig, check_cluster
from kafkawire.config.keys import Key, Update
from kafkawire.config.settings import setting
from kafkawire.config.tier_config import check_tier
from kafkawire.config.topic_config import LOG_KEYS, MIB
from kafkawire.config.unbuilt import HARMLESS_KEYS, REFUSED_KEYS, RETIRED_KEYS, UNBUILT_KEYS, UNLISTED_KEYS
from kafkawire.config.values import INT_MAX, PROTOCOLS, ConfigError, DailyWindow, Listener, one_line

__all__ = ["BROKER_KEYS", "Config", "ConfigError", "Listener", "load"]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClusterConfig):
    """Configuration of a broker. Defaults are Kafka's except for the addresses and directory of a first `make run`."""

    # Identity and addresses
    node_id: int = setting(
        "node.id", read.integer(0), "1", "The id of this broker, which no other of the cluster has.", also="broker.id"
    )
    rack: str = setting("broker.rack", read.text, None, "Where the broker stands; told to clients.")
    listeners: tuple[Listener, ...] = setting(
        "listeners", read.listeners, "PLAINTEXT://127.0.0.1:9092",
        "The addresses clients are served at, as NAME://host:port; without a host it is every address.",
        Update.PER_BROKER,
    )  # fmt: skip
    advertised_listeners: tuple[Listener, ...] = setting(
        "advertised.listeners", read.advertised_listeners, None,
        "The addresses clients are told, for listeners that they reach by another one than the broker listens at.",
    )  # fmt: skip
    listener_protocols: tuple[tuple[str, str], ...] = setting(
        "listener.security.protocol.map", read.protocols, ",".join(f"{one}:{one}" for one in PROTOCOLS),
        "The security protocol of each listener, by its name. Only PLAINTEXT can be served yet.", Update.PER_BROKER,
    )  # fmt: skip
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names", read.upper_words, None,
        "Listeners that are for KRaft controllers. They are not opened: this broker needs no KRaft quorum.",
    )  # fmt: skip
    http_listener: tuple[str, int] | None = setting(
        "http.listeners", read.http_address, "http://127.0.0.1:9644",
        "Where health and metrics are served, as http://host:port; empty, nowhere.",
    )  # fmt: skip
    http_allowed_hosts: tuple[str, ...] = setting(
        "http.allowed.hosts", read.hosts, "",
        "The names HTTP is asked for by, beside addresses, localhost and the host of http.listeners; * is any. Another "
        "name is not answered: whoever has one could point it here and let a browser read every topic.",
    )  # fmt: skip

    # Disks
    log_dirs: tuple[Path, ...] = setting(
        "log.dirs", read.directories, "data",
        "The directories records are kept in; of several, each partition is in one.", also="log.dir",
    )  # fmt: skip
    metadata_dir: Path | None = setting(
        "metadata.log.dir", read.directory, None,
        "The directory of the cluster's metadata. Not set, it is metadata in the first of log.dirs.",
    )  # fmt: skip
    disk_reject_ratio: float = setting(
        "disk.reject.ratio", read.ratio(), "0.95",
        "The part of a disk's space in use from which on it takes no more records; 1 is never.",
    )  # fmt: skip
    disk_max_used_ratio: float = setting(
        "disk.max.used.ratio", read.ratio(), "1.0",
        "The part of a disk's space in use above which the oldest segments of topics with cleanup.policy=delete go "
        "before their time; 1 is never.",
    )  # fmt: skip
    stray_retention_ms: int = setting(
        "log.dir.stray.retention.ms", read.long(0), "604800000",
        "How long a log that the metadata does not name is kept, in milliseconds of running time: only time counts in "
        "which the broker runs and can use the metadata.",
    )  # fmt: skip
    journal_slot_size_bytes: int = setting(
        "journal.slot.bytes", read.integer(64 * 1024), str(32 * MIB),
        "The size of each of the two to four files of a log dir's journal, where small appends go first.",
    )  # fmt: skip
    io_workers: int = setting(
        "io.workers",
        read.integer(1, 64),
        "2",
        "How many threads read from each log dir, besides five for its other work.",
    )

    # Old segments
    retention_initial_delay_ms: int = setting(
        "log.initial.task.delay.ms", read.long(0), "30000",
        "How long after a start it is first looked for segments that are too old or too many.",
    )  # fmt: skip
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", read.long(1), "300000",
        "How often is looked for segments that retention.ms or retention.bytes lets go.",
    )  # fmt: skip
    cleanup_window: DailyWindow | None = setting(
        "log.cleanup.window", read.daily_window, None,
        "When in a day that may happen, such as 04:00-05:00 of local time. Not set, it is all day.",
    )  # fmt: skip

    # Sealed segments
    scrub_bytes_per_s: int = setting(
        "scrub.bytes.per.second", read.long(0), str(4 * MIB),
        "How much of finished segments each log dir reads in a second, to seal them or to check them again; 0 checks "
        "nothing again.",
    )  # fmt: skip
    scrub_interval_ms: int = setting(
        "scrub.interval.ms", read.long(1000), "86400000", "How long sealed segments are left alone between two checks."
    )

    # Topics
    num_partitions: int = setting(
        "num.partitions", read.integer(1), "1", "The partitions of a topic that is created without a number of them."
    )
    default_replication_factor: int = setting(
        "default.replication.factor", read.integer(1, 2**15 - 1), "1",
        "The replicas of a topic that is created without a number of them.",
    )  # fmt: skip
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", read.boolean, "true",
        "Whether a topic that a client asks for and that there is not is created, if the client agrees.",
    )  # fmt: skip
    delete_topic_enable: bool = setting(
        "delete.topic.enable", read.boolean, "true", "Whether topics can be deleted at all."
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", read.integer(1), "86400000",
        "How long a partition remembers an idempotent producer that writes nothing.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    transaction_partition_verification: bool = setting(
        "transaction.partition.verification.enable", read.boolean, "true",
        "Whether a transaction's coordinator is asked, before a producer that adds partitions by itself writes to one.",
        Update.CLUSTER_WIDE,
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", read.integer(1), "600000",
        "How often is looked for producers that can be forgotten.",
    )  # fmt: skip

    # Compaction
    cleaner_enable: bool = setting(
        "log.cleaner.enable", read.boolean, "true",
        "Whether compacted topics, those of committed offsets among them, are compacted.",
    )  # fmt: skip
    cleaner_threads: int = setting(
        "log.cleaner.threads", read.integer(0, 1000), "1", "How many logs are compacted at once.", Update.CLUSTER_WIDE
    )
    cleaner_dedupe_buffer_size_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size", read.long(MIB + 1), str(128 * MIB),
        "The memory for keys while logs are compacted, at 160 bytes a key; what does not fit takes another pass.",
        Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_dedupe_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", read.ratio(), "0.9",
        "The part of log.cleaner.dedupe.buffer.size that is used.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_io_buffer_size_bytes: int = setting(
        "log.cleaner.io.buffer.size", read.integer(0), str(512 * 1024),
        "How much of a log is read, and compacted, before others have their turn.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_io_max_bytes_per_s: float = setting(
        "log.cleaner.io.max.bytes.per.second", read.above_zero(), "1.7976931348623157E308",
        "How much compaction reads and writes in a second, at most and over all logs.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", read.long(0), "15000",
        "After what time the cleaner looks again, when there was nothing to compact.", Update.CLUSTER_WIDE,
    )  # fmt: skip

    # Requests and connections
    max_fetch_size_bytes: int = setting(
        "fetch.max.bytes", read.integer(1024), str(55 * MIB), "How much a fetch is answered with at most."
    )
    max_request_partitions: int = setting(
        "max.request.partition.size.limit", read.integer(1), "2000",
        "How many partitions a request for topics' partitions is answered with at most.",
    )  # fmt: skip
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", read.integer(0), "1000",
        "How many clients can be remembered what they fetch, so that they need not say it again.",
    )  # fmt: skip
    max_request_size_bytes: int = setting(
        "socket.request.max.bytes", read.integer(1), str(100 * MIB), "The largest request that is taken."
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", read.long_or_unlimited(1 * MIB), str(512 * MIB),
        "How many bytes of requests may be held, over all connections, before no more are read; -1 is any.",
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", read.integer(0), str(INT_MAX), "How many connections there may be.", Update.CLUSTER_WIDE
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", read.integer(0), str(INT_MAX),
        "How many connections there may be from one address.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", read.long_or_unlimited(1), "600000",
        "How long a connection on which nothing is asked stays open; -1 is for ever.",
    )  # fmt: skip

    given: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )  # the given properties, as written

    def advertised(self, name: str) -> Listener | None:
        """The advertised listener called `name`; None: the address of the accepted socket is advertised."""
        return next((listener for listener in self.advertised_listeners if listener.name == name), None)


_SETTINGS: Final = [one for one in dataclasses.fields(Config) if "key" in one.metadata]
_CONFIG_KEYS: Final[dict[str, Key]] = {one.metadata["key"].name: one.metadata["key"] for one in _SETTINGS}
_FIELDS: Final[dict[str, str]] = {one.metadata["key"].name: one.name for one in _SETTINGS}

BROKER_KEYS: Final[dict[str, Key]] = dict(sorted((_CONFIG_KEYS | LOG_KEYS | UNBUILT_KEYS).items()))
KNOWN_KEYS: Final[dict[str, Key]] = BROKER_KEYS | UNLISTED_KEYS
OLDER_NAMES: Final[dict[str, str]] = {
    one.metadata["also"]: one.metadata["key"].name for one in _SETTINGS if one.metadata["also"]
}


def load(
    properties: Mapping[str, str], origins: Mapping[str, str] = _NOTHING, of_all: Collection[str] = ()
) -> tuple[Config, list[str]]:
    """Read properties into a Config and a list of warnings.

    `origins` gives the places of keys, `of_all` the keys that are set for all brokers at run time.

    Errors: ConfigError, one line naming the key, for a bad value or a value that is not built yet.
    """
    try:
        values = _values(properties)
        config = _without_controllers(Config(**values, given=dict(properties)))
        _check(config, {key: value for key, value in properties.items() if key not in of_all})
        strangers = {
            key: _stranger(key, value)
            for key, value in properties.items()
            if OLDER_NAMES.get(key, key) not in KNOWN_KEYS
        }
    except ConfigError as error:
        raise ConfigError(_at(origins, error.key, str(error)), error.key) from None
    remarks = [*strangers.items(), *(("listeners", remark) for remark in _unopened(values))]
    return config, [_at(origins, key, remark) for key, remark in remarks]


def _at(origins: Mapping[str, str], key: str, remark: str) -> str:
    return f"{origins[key]}: {remark}" if key in origins else remark


def _values(properties: Mapping[str, str]) -> dict[str, Any]:
    """Fields of Config; a key precedes its older name."""
    values: dict[str, Any] = {}
    for given, value in sorted(properties.items(), key=lambda item: item[0] not in OLDER_NAMES):
        name = OLDER_NAMES.get(given, given)
        if name in KNOWN_KEYS:
            found = read_value(KNOWN_KEYS[name], value, given)
            if name in _FIELDS:
                values[_FIELDS[name]] = found
    return values


def read_value(key: Key, value: str, given: str = "") -> Any:
    """The value of a key, which was `given` under this name. Raises ConfigError."""
    name = given or key.name
    if not key.is_built and not key.is_default(value):
        only = "" if key.default is None else f", only {name}={key.default}"
        raise ConfigError(f"{key.assigned(name, value)}: not supported yet{only}", name)
    try:
        return key.reader(value)
    except ValueError as error:
        raise ConfigError(f"{key.assigned(name, value)}: {error}", name) from None


def _stranger(key: str, value: str) -> str:
    """The reason why a foreign key has no effect. Raises ConfigError if it must have one."""
    if key in RETIRED_KEYS:
        as_today, why, instead = RETIRED_KEYS[key]
        if value.strip() != as_today:
            raise ConfigError(f"{key}: only {as_today} is supported; {instead}", key)
        return f"{key} has no effect: {why}"
    if key in HARMLESS_KEYS:
        return f"{key} has no effect here: {HARMLESS_KEYS[key]}"
    for beginning, why in REFUSED_KEYS.items():
        if key.startswith(beginning):
            raise ConfigError(f"{key}: {why}", key)
    return f"{one_line(key) or repr(key)} is not a key of this broker"


def _without_controllers(config: Config) -> Config:
    """The configuration without the listeners of KRaft's controllers, which would serve nothing."""
    names = config.controller_listener_names
    return dataclasses.replace(
        config,
        listeners=tuple(one for one in config.listeners if one.name not in names),
        advertised_listeners=tuple(one for one in config.advertised_listeners if one.name not in names),
    )


def _unopened(values: Mapping[str, Any]) -> list[str]:
    return [
        f"listener {one.name}://{one.host}:{one.port} is not opened: this broker needs no KRaft quorum"
        for one in values.get("listeners", ())
        if one.name in values.get("controller_listener_names", ())
    ]


def _check(config: Config, own: Mapping[str, str]) -> None:
    """Check combinations of keys. `own` are the properties of this broker. Raises ConfigError."""
    if config.group_session_timeout_min_ms > config.group_session_timeout_max_ms:
        key = "group.min.session.timeout.ms"
        raise ConfigError(f"{key} is greater than group.max.session.timeout.ms", key)
    check_tier(config)
    if not config.listeners:
        raise ConfigError("listeners: at least one is needed", "listeners")
    for listener in config.listeners:
        protocol = _protocol(config, listener.name)
        if protocol != "PLAINTEXT":
            text = f"listeners: {listener.name} asks for {protocol}, only PLAINTEXT is supported yet"
            raise ConfigError(text, "listeners")
    names = {one.name for one in config.listeners}
    for listener in config.advertised_listeners:
        _check_advertised(listener, names)
    check_cluster(config, names, own)


def _protocol(config: Config, name: str) -> str:
    """The protocol of a listener. A given map of protocols must have it, as in Kafka; else it is PLAINTEXT."""
    key = "listener.security.protocol.map"
    protocols = dict(config.listener_protocols)
    if name not in protocols and key in config.given:
        raise ConfigError(f"listeners: {name} is not in {key}", "listeners")
    return protocols.get(name, "PLAINTEXT")


def _check_advertised(listener: Listener, names: set[str]) -> None:
    key = "advertised.listeners"
    if listener.name not in names:
        raise ConfigError(f"{key}: {listener.name} is not among listeners", key)
    if listener.host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, never bound
        raise ConfigError(f"{key}: {listener.name} needs an address clients can reach", key)
