"""Options of the broker's parts, made from its configuration: one function for each part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from coordinator.api import BrokerEndpoint
from coordinator.cluster_manager import ClusterManagerSettings
from coordinator.groups.entry import OffsetSettings
from coordinator.groups.service import GroupOptions
from coordinator.groups.step import GroupSettings
from coordinator.metadata.layout import KnownCluster
from coordinator.requests.topics import TopicDefaults
from coordinator.shards.writer import CacheMode
from coordinator.transactions.entry import TransactionSettings
from coordinator.transactions.service import TransactionOptions
from engine.compaction.cleaning_pass import CleanerOptions
from engine.options import StoreOptions
from engine.upkeep.retention_task import RetentionOptions
from engine.upkeep.sealing import SealingOptions
from kafkawire.config.broker_config import Config
from kafkawire.config.effective import COMPACTION
from kafkawire.peers.connection import PeerLimits
from kafkawire.peers.peers import PeerSettings
from kafkawire.replication.questions import FetchLimits
from kafkawire.replication.replication import ReplicationSettings
from kafkawire.requests.throttles import Throttles
from kafkawire.server.server import ServerLimits
from kafkawire.wire.connection import ConnectionLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from coordinator.controller.probes import IsRefused
    from coordinator.metadata.history import HistoryPosition
    from coordinator.ports import ReplicaEnds

MINUTE_MS: Final = 60_000
REGISTRATION_MARGIN_S: Final = 12.0  # beyond the session time-out of the broker's previous process


def coordinator_settings(
    config: Config,
    endpoints: Iterable[BrokerEndpoint],
    is_refused: IsRefused,
    before_registration: Callable[[], None],
    cluster_id: str | None,
    followed: HistoryPosition | None,
    ends: ReplicaEnds,
) -> ClusterManagerSettings:
    """Settings of the control plane. `cluster_id`, `followed`: from the log dirs, None if these are new."""
    prefers = config.auto_leader_rebalance_enable
    return ClusterManagerSettings(
        config.node_id,
        tuple(endpoints),
        config.rack or None,
        TopicDefaults(config.num_partitions, config.default_replication_factor),
        registration_timeout_s=config.zookeeper_session_timeout_ms / 1000 + REGISTRATION_MARGIN_S,
        prefer_interval_s=config.leader_imbalance_check_interval_seconds if prefers else math.inf,
        is_refused=is_refused if config.is_in_cluster else None,
        before_registration=before_registration,
        cluster=KnownCluster(cluster_id, waits=config.is_in_cluster, followed=followed),
        replica_ends=ends if config.is_in_cluster else None,
        recovery_wait_s=config.controller_recovery_wait_ms / 1000,
    )


def advertised(config: Config, ports: Mapping[str, int]) -> Iterator[BrokerEndpoint]:
    """The advertised address of each listener: as configured, else the address where it listens. `ports`: the port of
    each listener, by its name."""
    for one in config.listeners:
        named = config.advertised(one.name)
        host, port = (one.host, ports[one.name]) if named is None else (named.host, named.port)
        yield BrokerEndpoint(one.name, host, port)


def cleaner_options(config: Config) -> CleanerOptions:
    """Options of the cleaner, which compacts logs."""
    return CleanerOptions(
        threads=config.cleaner_threads if config.cleaner_enable else 0,
        dedupe_buffer_size_bytes=config.cleaner_dedupe_buffer_size_bytes,
        dedupe_buffer_load_factor=config.cleaner_dedupe_buffer_load_factor,
        io_buffer_size_bytes=config.cleaner_io_buffer_size_bytes,
        io_max_bytes_per_s=config.cleaner_io_max_bytes_per_s,
        backoff_ms=config.cleaner_backoff_ms,
    )


def retention_options(config: Config) -> RetentionOptions:
    """Options of retention: interval, time window and disk limits."""
    window = config.cleanup_window
    return RetentionOptions(
        check_interval_ms=config.retention_check_interval_ms,
        initial_delay_ms=config.retention_initial_delay_ms,
        is_time=(lambda _now_ms: True) if window is None else window.holds_at,
        disk_max_used_ratio=config.disk_max_used_ratio,
        disk_reject_ratio=config.disk_reject_ratio,
    )


def store_options(config: Config, cluster_id: str, open_files_max: int) -> StoreOptions:
    """Options of the segment store."""
    return StoreOptions(
        log_dirs=tuple(str(path.absolute()) for path in config.log_dirs),
        cluster_id=cluster_id,
        broker_id=config.node_id,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        reader_workers=config.io_workers,
        stray_retention_ms=config.stray_retention_ms,
        open_files_max=open_files_max,
        retention=retention_options(config),
        sealing=SealingOptions(config.scrub_bytes_per_s, config.scrub_interval_ms),
        journal_slot_size_bytes=config.journal_slot_size_bytes,
        cleaner=cleaner_options(config),
    )


def fetch_limits(config: Config) -> FetchLimits:
    """Limits of all fetches from other brokers."""
    return FetchLimits(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_size_bytes,
        partition_max_bytes=config.replica_fetch_max_size_bytes,
        response_max_bytes=config.replica_fetch_response_max_size_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )


def throttles(config: Config, boot_ms: Callable[[], int]) -> Throttles:
    """Replication throttles, with the limits of the configuration at the start."""
    samples, sample_ms = config.throttle_samples, config.throttle_sample_s * 1000
    found = Throttles(config.node_id, boot_ms, samples=samples, sample_ms=sample_ms)
    limit(found, config)
    return found


def limit(throttles: Throttles, config: Config) -> None:
    """Set the limits of the throttles to the present configuration."""
    throttles.leader.limit_bytes_per_s = config.leader_throttled_bytes_per_s
    throttles.follower.limit_bytes_per_s = config.follower_throttled_bytes_per_s


def server_limits(config: Config, connections_max: int) -> ServerLimits:
    """Limits of all connections. `connections_max`: the count of connections for which there are file descriptors."""
    connection = ConnectionLimits(
        max_frame_size_bytes=config.max_request_size_bytes, idle_timeout_ms=config.connections_max_idle_ms
    )
    found = ServerLimits(
        connection=connection,
        max_unauthenticated=config.connections_max_unauthenticated,
        queued_max_request_size_bytes=config.queued_max_request_bytes,
    )
    limit_connections(found, config, connections_max)
    return found


def limit_connections(limits: ServerLimits, config: Config, connections_max: int) -> None:
    """Set the limits of connections to the present configuration."""
    limits.max_connections = min(config.max_connections, connections_max)
    limits.max_connections_per_ip = config.max_connections_per_ip


def replication_settings(config: Config) -> ReplicationSettings:
    """Settings of replication on this broker."""
    return ReplicationSettings(config.node_id, fetch_limits(config), config.replica_lag_time_max_ms)


def link_settings(config: Config, secret: bytes) -> PeerSettings:
    """Settings of peer connections. A reply may hold all records of a fetch and one more batch of any allowed size."""
    limits = PeerLimits(reply_max_bytes=config.replica_fetch_response_max_size_bytes + config.max_request_size_bytes)
    listener_name = config.inter_broker_listener
    return PeerSettings(broker_id=config.node_id, listener_name=listener_name, secret=secret, limits=limits)


def transaction_options(config: Config) -> TransactionOptions:
    """Options of the transaction coordinator."""
    return TransactionOptions(
        broker_id=config.node_id,
        settings=TransactionSettings(
            timeout_max_ms=config.transaction_timeout_max_ms,
            expiration_ms=config.transactional_id_expiration_ms,
            timeout_check_interval_ms=config.transaction_timeout_check_interval_ms,
        ),
        topic_configs=dict(
            [
                COMPACTION,
                ("compression.type", "uncompressed"),
                ("segment.bytes", str(config.transactions_topic_segment_size_bytes)),
            ]
        ),
        partition_count=config.transactions_topic_partitions,
        replication_factor=config.transactions_topic_replication_factor if config.is_in_cluster else 1,
        min_isr=config.transactions_topic_min_isr,
        expiry_check_interval_ms=config.transactional_id_expiration_check_interval_ms,
    )


def group_options(config: Config) -> GroupOptions:
    """Options of the group coordinator and of committed offsets."""
    return GroupOptions(
        broker_id=config.node_id,
        groups=GroupSettings(
            session_timeout_min_ms=config.group_session_timeout_min_ms,
            session_timeout_max_ms=config.group_session_timeout_max_ms,
            members_max=config.group_members_max,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        ),
        offsets=OffsetSettings(
            metadata_max_length=config.offset_metadata_max_length,
            retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        ),
        topic_configs=dict([COMPACTION, ("segment.bytes", str(config.offsets_topic_segment_size_bytes))]),
        partition_count=config.offsets_topic_partitions,
        replication_factor=config.offsets_topic_replication_factor if config.is_in_cluster else 1,
        retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        cache_mode=CacheMode(config.offsets_view_mode),
        cache_flush_interval_ms=config.offsets_view_flush_interval_ms,
        commit_timeout_ms=config.offsets_commit_timeout_ms,
    )
