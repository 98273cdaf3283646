"""The part of the broker's configuration about the cluster: the metadata store, and connections between brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkawire.config import values as read
from kafkawire.config.keys import Update
from kafkawire.config.settings import setting
from kafkawire.config.tier_config import TierConfig
from kafkawire.config.values import ConfigError

DEFAULT_LISTENER: Final = "PLAINTEXT"  # the default of security.inter.broker.protocol
UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(TierConfig):
    """See `kafkawire.config.broker_config.Config`. Defaults are Kafka's, where Kafka has, or had, the key."""

    zookeeper_connect: str = setting(
        "zookeeper.connect", read.text, "",
        "The ZooKeeper servers that coordinate the cluster, as host:port,host:port/chroot. Empty: this broker stands "
        "alone, and its metadata is in a directory.",
    )  # fmt: skip
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", read.integer(1), "18000",
        "After what time without a word from this broker ZooKeeper takes it for dead.",
    )  # fmt: skip
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", read.optional(read.integer(1)), None,
        "How long a start looks for a ZooKeeper server that answers. Not set, it is zookeeper.session.timeout.ms.",
    )  # fmt: skip
    zookeeper_credentials_file: Path | None = setting(
        "zookeeper.credentials.file", read.directory, None,
        "A file with user:password, by which this broker is known to ZooKeeper (digest); the nodes that it makes are "
        "for these credentials alone.",
    )  # fmt: skip
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", read.optional(read.upper_word), None,
        "The listener at which brokers reach each other. Not set, it is PLAINTEXT.",
    )  # fmt: skip
    inter_broker_secret_file: Path | None = setting(
        "inter.broker.secret.file", read.directory, None,
        "A file with the secret by which brokers of one cluster know each other; with zookeeper.connect there has to "
        "be one.",
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", read.boolean, "true",
        "Whether leaders go back, now and then, to the first of a partition's replicas.",
    )  # fmt: skip
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds", read.long(1), "300", "How often leaders go back."
    )
    controller_recovery_wait_ms: int = setting(
        "controller.recovery.wait.ms", read.long(0), "10000",
        "How long the controller waits for the replicas in sync of a partition, if the processes of all of them have "
        "ended, before it elects the one with the longest log of those that are back. 0: it elects the first that is "
        "back.",
    )  # fmt: skip
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", read.long(1), "30000",
        "A follower leaves the ISR if it does not fetch for so long, or lacks what its leader had so long ago. "
        "It joins again when it lags less.",
    )  # fmt: skip
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", read.integer(1, 1000), "500",
        "How long a leader lets a follower wait that asks for more than there is.",
    )  # fmt: skip
    replica_fetch_min_size_bytes: int = setting(
        "replica.fetch.min.bytes", read.integer(1), "1", "How much there has to be for a follower that can wait."
    )
    replica_fetch_max_size_bytes: int = setting(
        "replica.fetch.max.bytes", read.integer(0), "1048576",
        "How much of one partition a follower fetches at once. A batch that is larger comes all the same; and more, if "
        "replica.fetch.response.max.bytes leaves room, unless the topic names replicas whose rate is limited.",
    )  # fmt: skip
    replica_fetch_response_max_size_bytes: int = setting(
        "replica.fetch.response.max.bytes", read.integer(0), "10485760",
        "How much of all partitions a follower fetches at once; a batch that is larger comes all the same.",
    )  # fmt: skip
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", read.integer(0), "1000",
        "How long a follower rests that could not fetch, or take what it fetched; after first refusals less.",
    )  # fmt: skip
    leader_throttled_bytes_per_s: int = setting(
        "leader.replication.throttled.rate", read.long(0), str(read.LONG_MAX),
        "How much replicas that are not in sync may fetch from here in a second, of partitions that "
        "leader.replication.throttled.replicas names.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    follower_throttled_bytes_per_s: int = setting(
        "follower.replication.throttled.rate", read.long(0), str(read.LONG_MAX),
        "How much this broker may fetch in a second of partitions of which it is not in sync and that "
        "follower.replication.throttled.replicas names.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    throttle_samples: int = setting(
        "replication.quota.window.num", read.integer(1), "11",
        "Over how many samples what is throttled between brokers is measured.",
    )  # fmt: skip
    throttle_sample_s: int = setting(
        "replication.quota.window.size.seconds", read.integer(1), "1", "How long such a sample lasts."
    )

    @property
    def is_in_cluster(self) -> bool:
        """Whether there may be other brokers."""
        return bool(self.zookeeper_connect)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener at which brokers reach each other."""
        return self.inter_broker_listener_name or DEFAULT_LISTENER


def check_cluster(config: ClusterConfig, listeners: Collection[str], given: Mapping[str, str]) -> None:
    """Check combinations of keys. Raises ConfigError. `given`: all set properties except those of all brokers."""
    if read.boolean(given.get(UNCLEAN, "false")):
        raise ConfigError(f"{UNCLEAN}: it is a config of topics, or of all brokers at run time", UNCLEAN)
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        key = "replica.fetch.wait.max.ms"
        raise ConfigError(f"{key} should always be less than or equal to replica.lag.time.max.ms", key)
    key = "inter.broker.listener.name"
    if config.inter_broker_listener_name is not None and config.inter_broker_listener not in listeners:
        raise ConfigError(f"{key}: {config.inter_broker_listener} is not among listeners", key)
    if not config.is_in_cluster:
        return
    if config.inter_broker_listener not in listeners:
        raise ConfigError(f"{key} has to say at which of the listeners brokers reach each other", key)
    if config.inter_broker_secret_file is None:
        key = "inter.broker.secret.file"
        raise ConfigError(f"{key}: with zookeeper.connect there has to be a secret that the brokers share", key)
