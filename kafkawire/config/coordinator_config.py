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
        "The shortest time without a heartbeat that a member may ask to be allowed.",
    )  # fmt: skip
    group_session_timeout_max_ms: int = setting(
        "group.max.session.timeout.ms", read.integer(1), "1800000",
        "The longest time without a heartbeat that a member may ask to be allowed.",
    )  # fmt: skip
    group_members_max: int = setting(
        "group.max.size", read.integer(1), str(INT_MAX), "How many members a group may have."
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", read.integer(0), "3000",
        "How long a new group waits for more members before it assigns partitions for the first time.",
    )  # fmt: skip
    offset_metadata_max_length: int = setting(
        "offset.metadata.max.bytes", read.integer(0), "4096", "How much text may be committed along with an offset."
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", read.integer(1), "10080",
        "How long offsets are kept once a group has no members, or no longer reads the topic.",
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", read.long(1), "600000", "How often is looked for offsets that expired."
    )
    offsets_topic_partitions: int = setting(
        "offsets.topic.num.partitions", read.integer(1), "50",
        "The partitions of the topic of committed offsets, when it is created.",
    )  # fmt: skip
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor", read.short(1), "3",
        "The replicas of the topic of committed offsets, when it is created, for which there have to be brokers; 1 "
        "without zookeeper.connect.",
    )  # fmt: skip
    offsets_topic_segment_size_bytes: int = setting(
        "offsets.topic.segment.bytes", read.integer(1 * MIB), str(100 * MIB),
        "The segment.bytes of the topic of committed offsets, when it is created.",
    )  # fmt: skip
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms", read.integer(1), "5000",
        "How long somebody who commits offsets, or asks a group's coordinator for anything else, waits for what may "
        "not become durable; at most half as long again.",
    )  # fmt: skip
    offsets_view_mode: str = setting(
        "offsets.view.mode", read.choice("cached", "direct"), "cached",
        "Whether what was committed is written to the view that a start reads now and then, or at once.",
    )  # fmt: skip
    offsets_view_flush_interval_ms: int = setting(
        "offsets.view.flush.interval.ms", read.integer(1), "100", "With offsets.view.mode=cached: how often."
    )

    # Transactions
    transaction_timeout_max_ms: int = setting(
        "transaction.max.timeout.ms", read.integer(1), "900000",
        "The longest time a producer may give a transaction.",
    )  # fmt: skip
    transaction_timeout_check_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", read.integer(1), "10000",
        "How often is looked for transactions that took too long, to abort them.",
    )  # fmt: skip
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", read.integer(1), "604800000",
        "How long a transactional id that nobody uses is remembered.",
    )  # fmt: skip
    transactional_id_expiration_check_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", read.integer(1), "3600000",
        "How often is looked for transactional ids that can be forgotten.",
    )  # fmt: skip
    transactions_topic_partitions: int = setting(
        "transaction.state.log.num.partitions", read.integer(1), "50",
        "The partitions of the topic of transactions, when it is created.",
    )  # fmt: skip
    transactions_topic_replication_factor: int = setting(
        "transaction.state.log.replication.factor", read.short(1), "3",
        "The replicas of the topic of transactions, when it is created, for which there have to be brokers; 1 "
        "without zookeeper.connect.",
    )  # fmt: skip
    transactions_topic_min_isr: int = setting(
        "transaction.state.log.min.isr", read.integer(1), "2",
        "The min.insync.replicas of the topic of transactions, when it is created; as many as it has replicas at most.",
    )  # fmt: skip
    transactions_topic_segment_size_bytes: int = setting(
        "transaction.state.log.segment.bytes", read.integer(1 * MIB), str(100 * MIB),
        "The segment.bytes of the topic of transactions, when it is created.",
    )  # fmt: skip
