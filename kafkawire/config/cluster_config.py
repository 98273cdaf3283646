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
        "The ZooKeeper servers that coordinate the cluster, as host:port,host:port/chroot. Empty: the broker runs "
        "alone, and its metadata is in a directory.",
    )  # fmt: skip
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", read.integer(1), "18000",
        "The time without a message from this broker after which ZooKeeper expires its session.",
    )  # fmt: skip
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", read.optional(read.integer(1)), None,
        "How long a start waits for a connection to ZooKeeper. Not set: zookeeper.session.timeout.ms.",
    )  # fmt: skip
    zookeeper_credentials_file: Path | None = setting(
        "zookeeper.credentials.file", read.directory, None,
        "A file with user:password, the digest credentials of this broker for ZooKeeper. Only these credentials can "
        "read and write the nodes that the broker creates.",
    )  # fmt: skip
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", read.optional(read.upper_word), None,
        "The listener that brokers use to reach each other. Not set: PLAINTEXT.",
    )  # fmt: skip
    inter_broker_secret_file: Path | None = setting(
        "inter.broker.secret.file", read.directory, None,
        "A file with the secret that brokers of one cluster share. It is required with zookeeper.connect.",
    )  # fmt: skip
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", read.boolean, "true",
        "Whether leaderships return to the preferred leader, the first replica of each partition.",
    )  # fmt: skip
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        read.long(1),
        "300",
        "The interval between two checks for leaderships to return to preferred leaders.",
    )
    controller_recovery_wait_ms: int = setting(
        "controller.recovery.wait.ms", read.long(0), "10000",
        "How long the controller waits, after the processes of all in-sync replicas of a partition have ended, "
        "before it elects the replica with the longest log of those that are back. 0: the first replica that is back "
        "is elected.",
    )  # fmt: skip
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", read.long(1), "30000",
        "A follower leaves the ISR if, for this time, it has sent no Fetch or has not caught up with its leader's "
        "log end. It rejoins when its lag in time is smaller.",
    )  # fmt: skip
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", read.integer(1, 1000), "500",
        "How long a leader holds a follower's Fetch that finds no new records.",
    )  # fmt: skip
    replica_fetch_min_size_bytes: int = setting(
        "replica.fetch.min.bytes",
        read.integer(1),
        "1",
        "The bytes that a follower's Fetch waits for, until replica.fetch.wait.max.ms.",
    )
    replica_fetch_max_size_bytes: int = setting(
        "replica.fetch.max.bytes", read.integer(0), "1048576",
        "The bytes of one partition in a follower's Fetch. A larger first batch is sent all the same. A response has "
        "more of a partition if replica.fetch.response.max.bytes leaves room and the topic names no throttled "
        "replicas.",
    )  # fmt: skip
    replica_fetch_response_max_size_bytes: int = setting(
        "replica.fetch.response.max.bytes", read.integer(0), "10485760",
        "The bytes of all partitions in a follower's Fetch. A larger first batch is sent all the same.",
    )  # fmt: skip
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", read.integer(0), "1000",
        "The pause of a follower after a failed Fetch or a failed append. The pause is shorter after the first "
        "failures.",
    )  # fmt: skip
    leader_throttled_bytes_per_s: int = setting(
        "leader.replication.throttled.rate", read.long(0), str(read.LONG_MAX),
        "The bytes that replicas outside the ISR may fetch from this broker in a second, over the partitions that "
        "leader.replication.throttled.replicas names.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    follower_throttled_bytes_per_s: int = setting(
        "follower.replication.throttled.rate", read.long(0), str(read.LONG_MAX),
        "The bytes that this broker may fetch in a second for replicas outside the ISR, over the partitions that "
        "follower.replication.throttled.replicas names.", Update.CLUSTER_WIDE,
    )  # fmt: skip
    throttle_samples: int = setting(
        "replication.quota.window.num", read.integer(1), "11",
        "The number of samples from which the rate of throttled replication is measured.",
    )  # fmt: skip
    throttle_sample_s: int = setting(
        "replication.quota.window.size.seconds",
        read.integer(1),
        "1",
        "The length of a sample of throttled replication.",
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
