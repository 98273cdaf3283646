"""The part of the broker's configuration for its coordinators: groups, their offsets, and transactions."""

from __future__ import annotations

from dataclasses import dataclass

from kafkawire.config import values as read
from kafkawire.config.settings import setting
from kafkawire.config.topic_config import MIB
from kafkawire.config.values import INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """See `kafkawire.config.broker_config.Config`. Defaults are Kafka's, where Kafka has the key."""

    # Groups
    group_session_timeout_min_ms: int = setting(
        "group.min.session.timeout.ms", read.integer(1), "6000",
        "The shortest session timeout that a member may ask for.",
    )  # fmt: skip
    group_session_timeout_max_ms: int = setting(
        "group.max.session.timeout.ms", read.integer(1), "1800000",
        "The longest session timeout that a member may ask for.",
    )  # fmt: skip
    group_members_max: int = setting(
        "group.max.size", read.integer(1), str(INT_MAX), "The maximum number of members of a group."
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", read.integer(0), "3000",
        "How long a new group waits for more members before its first rebalance.",
    )  # fmt: skip
    offset_metadata_max_length: int = setting(
        "offset.metadata.max.bytes",
        read.integer(0),
        "4096",
        "The maximum size of the metadata that is committed with an offset.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", read.integer(1), "10080",
        "How long committed offsets are kept after a group has lost its last member, or has stopped reading the "
        "topic.",
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        read.long(1),
        "600000",
        "The interval between two checks for expired offsets.",
    )
    offsets_topic_partitions: int = setting(
        "offsets.topic.num.partitions", read.integer(1), "50",
        "The number of partitions of the topic of committed offsets, when it is created.",
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", read.short(1), "3",
        "The number of replicas of the topic of committed offsets, when it is created. So many brokers must be "
        "registered. 1 without zookeeper.connect.",
    )  # fmt: skip
    offsets_topic_segment_size_bytes: int = setting(
        "offsets.topic.segment.bytes", read.integer(1 * MIB), str(100 * MIB),
        "The segment.bytes of the topic of committed offsets, when it is created.",
    )  # fmt: skip
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms", read.integer(1), "5000",
        "How long an OffsetCommit, or another request to a group coordinator, waits for a write to become durable. A "
        "request waits half as long again at most.",
    )  # fmt: skip
    offsets_view_mode: str = setting(
        "offsets.view.mode", read.choice("cached", "direct"), "cached",
        "Whether committed offsets reach the cache that a start reads at intervals (cached), or at once (direct).",
    )  # fmt: skip
    offsets_view_flush_interval_ms: int = setting(
        "offsets.view.flush.interval.ms", read.integer(1), "100", "The interval of offsets.view.mode=cached."
    )

    # Transactions
    transaction_timeout_max_ms: int = setting(
        "transaction.max.timeout.ms", read.integer(1), "900000",
        "The longest transaction timeout that a producer may ask for.",
    )  # fmt: skip
    transaction_timeout_check_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", read.integer(1), "10000",
        "The interval between two checks for transactions that have timed out and must be aborted.",
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", read.integer(1), "604800000",
        "How long an unused transactional id is kept.",
    )  # fmt: skip
    transactional_id_expiration_check_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", read.integer(1), "3600000",
        "The interval between two checks for expired transactional ids.",
    )  # fmt: skip
    transactions_topic_partitions: int = setting(
        "transaction.state.log.num.partitions", read.integer(1), "50",
        "The number of partitions of the topic of transactions, when it is created.",
    )  # fmt: skip
    transactions_topic_replication_factor: int = setting(
        "transaction.state.log.replication.factor", read.short(1), "3",
        "The number of replicas of the topic of transactions, when it is created. So many brokers must be "
        "registered. 1 without zookeeper.connect.",
    )  # fmt: skip
    transactions_topic_min_isr: int = setting(
        "transaction.state.log.min.isr", read.integer(1), "2",
        "The min.insync.replicas of the topic of transactions, when it is created. At most the number of its "
        "replicas.",
    )  # fmt: skip
    transactions_topic_segment_size_bytes: int = setting(
        "transaction.state.log.segment.bytes", read.integer(1 * MIB), str(100 * MIB),
        "The segment.bytes of the topic of transactions, when it is created.",
    )  # fmt: skip
