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
from kafkawire.config.security.listener_keys import ListenerValues, is_prefixed, key_of, listener_of
from kafkawire.config.security.ssl_keys import SSL_KEYS
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
        "node.id", read.integer(0), "1", "The id of this broker: unique in the cluster.", also="broker.id"
    )
    rack: str = setting(
        "broker.rack", read.text, None, "The rack of this broker. Clients learn it from Metadata responses."
    )
    listeners: tuple[Listener, ...] = setting(
        "listeners", read.listeners, "PLAINTEXT://127.0.0.1:9092",
        "The addresses that the broker listens at, as NAME://host:port. Without a host, the listener is bound to "
        "every address.",
        Update.PER_BROKER,
    )  # fmt: skip
    advertised_listeners: tuple[Listener, ...] = setting(
        "advertised.listeners", read.advertised_listeners, None,
        "The addresses that clients connect to, where they differ from listeners.",
    )  # fmt: skip
    listener_protocols: tuple[tuple[str, str], ...] = setting(
        "listener.security.protocol.map", read.protocols, ",".join(f"{one}:{one}" for one in PROTOCOLS),
        "The security protocol of each listener, by listener name: PLAINTEXT or SSL. SASL is not supported yet.",
        Update.PER_BROKER,
    )  # fmt: skip
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names", read.upper_words, None,
        "Listeners for KRaft controllers. The broker does not open them: it needs no KRaft quorum.",
    )  # fmt: skip
    http_listener: tuple[str, int] | None = setting(
        "http.listeners", read.http_address, "http://127.0.0.1:9644",
        "The address that serves health and metrics, as http://host:port. Empty: no HTTP listener.",
    )  # fmt: skip
    http_allowed_hosts: tuple[str, ...] = setting(
        "http.allowed.hosts", read.hosts, "",
        "The host names that an HTTP request may name, in addition to addresses, localhost and the host of "
        "http.listeners. * is any name. A request with another name is refused: the owner of that name could point "
        "it here, and a browser would read every topic for it.",
    )  # fmt: skip

    # Disks
    log_dirs: tuple[Path, ...] = setting(
        "log.dirs", read.directories, "data",
        "The log dirs. Each partition is in one of them.", also="log.dir",
    )  # fmt: skip
    metadata_dir: Path | None = setting(
        "metadata.log.dir", read.directory, None,
        "The directory of the cluster's metadata. Not set: the directory metadata in the first of log.dirs.",
    )  # fmt: skip
    disk_reject_ratio: float = setting(
        "disk.reject.ratio", read.ratio(), "0.95",
        "The used share of a disk at which the disk takes no more records. 1: never.",
    )  # fmt: skip
    disk_max_used_ratio: float = setting(
        "disk.max.used.ratio", read.ratio(), "1.0",
        "The used share of a disk above which the oldest segments of topics with cleanup.policy=delete are deleted "
        "before their retention ends. 1: never.",
    )  # fmt: skip
    stray_retention_ms: int = setting(
        "log.dir.stray.retention.ms", read.long(0), "604800000",
        "How long a stray log (a log that the metadata does not name) is kept. Only time in which the broker runs "
        "and can use the metadata counts.",
    )  # fmt: skip
    journal_slot_size_bytes: int = setting(
        "journal.slot.bytes", read.integer(64 * 1024), str(32 * MIB),
        "The size of each of the two to four files of a log dir's journal. Small appends are written there first.",
    )  # fmt: skip
    io_workers: int = setting(
        "io.workers",
        read.integer(1, 64),
        "2",
        "The number of threads that read from each log dir. Five more threads do the other work of the log dir.",
    )

    # Old segments
    retention_initial_delay_ms: int = setting(
        "log.initial.task.delay.ms", read.long(0), "30000",
        "How long after a start the first retention check runs.",
    )  # fmt: skip
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", read.long(1), "300000",
        "The interval between two checks for segments that retention.ms or retention.bytes allows to delete.",
    )  # fmt: skip
    cleanup_window: DailyWindow | None = setting(
        "log.cleanup.window", read.daily_window, None,
        "The time of day in which retention checks run, such as 04:00-05:00 of local time. Not set: all day.",
    )  # fmt: skip

    # Sealed segments
    scrub_bytes_per_s: int = setting(
        "scrub.bytes.per.second", read.long(0), str(4 * MIB),
        "The bytes of closed segments that each log dir reads in a second, to seal segments or to check them again. "
        "0: no segment is checked again.",
    )  # fmt: skip
    scrub_interval_ms: int = setting(
        "scrub.interval.ms", read.long(1000), "86400000", "How long a sealed segment is left alone between two checks."
    )

    # Topics
    num_partitions: int = setting(
        "num.partitions", read.integer(1), "1", "The number of partitions of a new topic, if the request names none."
    )
    default_replication_factor: int = setting(
        "default.replication.factor", read.integer(1, 2**15 - 1), "1",
        "The number of replicas of each partition of a new topic, if the request names none.",
    )  # fmt: skip
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", read.boolean, "true",
        "Whether a topic is created when a client asks for its metadata, if the client allows it.",
    )  # fmt: skip
    delete_topic_enable: bool = setting("delete.topic.enable", read.boolean, "true", "Whether topics can be deleted.")
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", read.integer(1), "86400000",
        "How long a partition remembers an idempotent producer after its last write.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    transaction_partition_verification: bool = setting(
        "transaction.partition.verification.enable", read.boolean, "true",
        "Whether the transaction coordinator is asked before a transactional producer writes to a partition for the "
        "first time in a transaction.",
        Update.CLUSTER_WIDE,
    )  # fmt: skip
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", read.integer(1), "600000",
        "The interval between two checks for expired producer ids.",
    )  # fmt: skip

    # Compaction
    cleaner_enable: bool = setting(
        "log.cleaner.enable", read.boolean, "true",
        "Whether compacted topics, including the topic of committed offsets, are compacted.",
    )  # fmt: skip
    cleaner_threads: int = setting(
        "log.cleaner.threads",
        read.integer(0, 1000),
        "1",
        "The number of logs that are compacted at the same time.",
        Update.CLUSTER_WIDE,
    )
    cleaner_dedupe_buffer_size_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size", read.long(MIB + 1), str(128 * MIB),
        "The memory for the keys of logs that are being compacted, at 160 bytes a key. Keys that do not fit need "
        "another pass.",
        Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_dedupe_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor", read.ratio(), "0.9",
        "The used share of log.cleaner.dedupe.buffer.size.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_io_buffer_size_bytes: int = setting(
        "log.cleaner.io.buffer.size", read.integer(0), str(512 * 1024),
        "The bytes of one log that the cleaner reads and compacts before the next log has its turn.",
        Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_io_max_bytes_per_s: float = setting(
        "log.cleaner.io.max.bytes.per.second", read.above_zero(), "1.7976931348623157E308",
        "The bytes that compaction reads and writes in a second, over all logs.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", read.long(0), "15000",
        "The pause of the cleaner after a check that found no log to compact.", Update.CLUSTER_WIDE,
    )  # fmt: skip

    # Requests and connections
    max_fetch_size_bytes: int = setting(
        "fetch.max.bytes", read.integer(1024), str(55 * MIB), "The maximum size of a Fetch response."
    )
    max_request_partitions: int = setting(
        "max.request.partition.size.limit", read.integer(1), "2000",
        "The maximum number of partitions in a DescribeTopicPartitions response.",
    )  # fmt: skip
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", read.integer(0), "1000",
        "The maximum number of incremental fetch sessions. A client without a session names all partitions in each "
        "Fetch.",
    )  # fmt: skip
    max_request_size_bytes: int = setting(
        "socket.request.max.bytes", read.integer(1), str(100 * MIB), "The maximum size of a request."
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", read.long_or_unlimited(1 * MIB), str(512 * MIB),
        "The bytes of requests that may be held in memory, over all connections, before the broker stops reading "
        "from them. -1: no limit.",
    )  # fmt: skip
    max_connections: int = setting(
        "max.connections", read.integer(0), str(INT_MAX), "The maximum number of connections.", Update.CLUSTER_WIDE
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", read.integer(0), str(INT_MAX),
        "The maximum number of connections from one address.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    connections_max_unauthenticated: int = setting(
        "connections.max.unauthenticated", read.integer(1), "1000",
        "The maximum number of connections of a listener that have not finished the handshake of TLS. An address gets "
        "a quarter of them.",
    )  # fmt: skip
    ssl_reload_interval_ms: int = setting(
        "ssl.reload.interval.ms", read.long(1000), "60000",
        "The interval between two checks whether files of a key store or a trust store have changed.",
    )  # fmt: skip
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", read.long_or_unlimited(1), "600000",
        "How long a connection stays open without a request. -1: for ever.",
    )  # fmt: skip

    given: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )  # the given properties, as written

    def protocol_of(self, name: str) -> str:
        """The protocol of a listener. A given map of protocols must have it, as in Kafka; else a listener that is
        named like a protocol has it, and any other is PLAINTEXT. Raises ConfigError."""
        key = "listener.security.protocol.map"
        protocols = dict(self.listener_protocols)
        if name not in protocols and key in self.given:
            raise ConfigError(f"listeners: {name} is not in {key}", "listeners")
        return protocols.get(name, "PLAINTEXT")

    @property
    def tls_listeners(self) -> tuple[str, ...]:
        """The names of the listeners that speak TLS. Raises ConfigError."""
        return tuple(one.name for one in self.listeners if self.protocol_of(one.name) in _TLS_PROTOCOLS)

    def advertised(self, name: str) -> Listener | None:
        """The advertised listener called `name`; None: the address of the accepted socket is advertised."""
        return next((listener for listener in self.advertised_listeners if listener.name == name), None)


_SERVED_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL"})
_TLS_PROTOCOLS: Final = frozenset({"SSL"})
_SETTINGS: Final = [one for one in dataclasses.fields(Config) if "key" in one.metadata]
_CONFIG_KEYS: Final[dict[str, Key]] = {one.metadata["key"].name: one.metadata["key"] for one in _SETTINGS}
_FIELDS: Final[dict[str, str]] = {one.metadata["key"].name: one.name for one in _SETTINGS}

BROKER_KEYS: Final[dict[str, Key]] = dict(sorted((_CONFIG_KEYS | LOG_KEYS | SSL_KEYS | UNBUILT_KEYS).items()))
KNOWN_KEYS: Final[dict[str, Key]] = BROKER_KEYS | UNLISTED_KEYS
OLDER_NAMES: Final[dict[str, str]] = {
    one.metadata["also"]: one.metadata["key"].name for one in _SETTINGS if one.metadata["also"]
}


def load(
    properties: Mapping[str, str], origins: Mapping[str, str] = _NOTHING, cluster_wide: Collection[str] = ()
) -> tuple[Config, list[str]]:
    """Read properties into a Config and a list of warnings.

    `origins` gives the places of keys, `cluster_wide` the keys that are set for all brokers at run time.

    Errors: ConfigError, one line naming the key, for a bad value or a value that is not built yet.
    """
    try:
        values = _values(properties)
        config = _without_controllers(Config(**values, given=dict(properties)))
        _check(config, {key: value for key, value in properties.items() if key not in cluster_wide})
        unknown_keys = {
            key: _unknown_key_remark(key, value)
            for key, value in properties.items()
            if OLDER_NAMES.get(key, key) not in KNOWN_KEYS and not is_prefixed(key)
        }
        unknown_keys |= _check_prefixed(config, values)
    except ConfigError as error:
        raise ConfigError(_at(origins, error.key, str(error)), error.key) from None
    remarks = [*unknown_keys.items(), *(("listeners", remark) for remark in _unopened(values))]
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


def _unknown_key_remark(key: str, value: str) -> str:
    """The reason why a foreign key has no effect. Raises ConfigError if it must have one."""
    if key in RETIRED_KEYS:
        as_today, reason, instead = RETIRED_KEYS[key]
        if value.strip() != as_today:
            raise ConfigError(f"{key}: only {as_today} is supported; {instead}", key)
        return f"{key} has no effect: {reason}"
    if key in HARMLESS_KEYS:
        return f"{key} has no effect here: {HARMLESS_KEYS[key]}"
    for prefix, reason in REFUSED_KEYS.items():
        if key.startswith(prefix):
            raise ConfigError(f"{key}: {reason}", key)
    return f"{one_line(key) or repr(key)} is not a key of this broker"


def _check_prefixed(config: Config, values: Mapping[str, Any]) -> dict[str, str]:
    """Check the keys that have the prefix of a listener. Returns remarks by key. Raises ConfigError."""
    opened, with_tls = {one.name for one in config.listeners}, config.tls_listeners
    remarks = {}
    controllers = values.get("controller_listener_names", ())
    for name in filter(is_prefixed, config.given):
        key = key_of(name, {*opened, *controllers})
        read_value(key, config.given[name], name)
        listener = listener_of(name, opened)
        if listener is None:
            remarks[name] = f"{name} has no effect: this broker needs no KRaft quorum"
        elif listener not in with_tls:
            raise ConfigError(f"{name}: listener {listener} is {config.protocol_of(listener)}, not SSL", name)
    return remarks | (_anonymous(config) if with_tls else _without_tls(config.given))


def _anonymous(config: Config) -> dict[str, str]:
    """Remarks on listeners that ask for a certificate, and go on without one."""
    key = "ssl.client.auth"
    asked = (one for one in config.tls_listeners if ListenerValues(config.given, one)[key] == "requested")
    names = ", ".join(sorted(asked))
    return {key: f"{key}=requested: a client of {names} without a certificate is User:ANONYMOUS"} if names else {}


def _without_tls(given: Mapping[str, str]) -> dict[str, str]:
    """Remarks on keys of TLS for a broker that has no listener with TLS."""
    return {
        key: f"{key} has no effect: no listener is SSL"
        for key, value in given.items()
        if key in SSL_KEYS and not SSL_KEYS[key].is_default(value)
    }


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
        protocol = config.protocol_of(listener.name)
        if protocol not in _SERVED_PROTOCOLS:
            text = f"listeners: {listener.name} asks for {protocol}, which is not supported yet"
            raise ConfigError(text, "listeners")
        if config.is_in_cluster and listener.name == config.inter_broker_listener and protocol != "PLAINTEXT":
            text = f"listeners: brokers reach each other at {listener.name}, which has to be PLAINTEXT as yet"
            raise ConfigError(text, "listeners")
    names = {one.name for one in config.listeners}
    for listener in config.advertised_listeners:
        _check_advertised(listener, names)
    check_cluster(config, names, own)


def _check_advertised(listener: Listener, names: set[str]) -> None:
    key = "advertised.listeners"
    if listener.name not in names:
        raise ConfigError(f"{key}: {listener.name} is not among listeners", key)
    if listener.host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, never bound
        raise ConfigError(f"{key}: {listener.name} needs an address clients can reach", key)
