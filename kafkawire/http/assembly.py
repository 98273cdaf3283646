"""The HTTP application of a broker, assembled from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.append_at_offset import KeptBatches
from kafkawire.config.tier_config import location_for_readers
from kafkawire.http.app import build_app
from kafkawire.http.controller_metrics import ControllerMetrics
from kafkawire.http.group_metrics import GroupMetrics
from kafkawire.http.health import Health
from kafkawire.http.hosts import AllowedHosts
from kafkawire.http.log_metrics import LogMetrics
from kafkawire.http.metadata_metrics import MetadataMetrics
from kafkawire.http.metrics import BrokerCollector
from kafkawire.http.replication_metrics import ReplicationMetrics
from kafkawire.http.tier_metrics import TierMetrics
from kafkawire.http.tls_metrics import TlsMetrics
from kafkawire.http.topic_routes import topic_routes
from kafkawire.http.transaction_metrics import TransactionMetrics
from kafkawire.requests.topic_lookup import high_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.api import ClusterImage
    from coordinator.cluster_manager import ClusterManager
    from coordinator.groups.api import GroupStatistics
    from coordinator.transactions.api import TransactionStatistics
    from engine.api import TopicIdPartition
    from engine.store import SegmentStore
    from engine.waiting_reads import WaitingReads
    from kafkawire.config.broker_config import Config
    from kafkawire.http.app import App
    from kafkawire.http.metadata_metrics import WatchedStore
    from kafkawire.http.tier_metrics import WatchedTier
    from kafkawire.http.tls_metrics import WatchedTls
    from kafkawire.requests.context import Authorizer
    from kafkawire.requests.metrics import RequestMetrics
    from kafkawire.requests.throttles import Throttles
    from kafkawire.server.loop_watch import LoopWatch
    from kafkawire.server.stats import ServerStats


class BrokerParts(NamedTuple):
    """The parts of a started broker."""

    config: Config
    now_ms: Callable[[], int]
    metrics: RequestMetrics
    stats: ServerStats
    watch: LoopWatch
    store: SegmentStore
    coordinator: ClusterManager
    groups: GroupStatistics
    transactions: TransactionStatistics
    tier: WatchedTier | None
    authorizer: Authorizer
    throttles: Throttles
    not_served: Callable[[], Mapping[TopicIdPartition, str]]
    metadata: WatchedStore
    reads: WaitingReads
    tls: WatchedTls


def assemble_app(parts: BrokerParts, is_live: Callable[[], bool]) -> App:
    """Build the application: health, metrics, topics."""
    store, config = parts.store, parts.config

    def image() -> ClusterImage:
        return parts.coordinator.image

    of_partitions, broker_id = store.partition_statistics, config.node_id
    transactions = TransactionMetrics(
        parts.transactions, of_partitions, parts.now_ms, config.transaction_timeout_max_ms
    )
    tier = TierMetrics(parts.tier)
    coordinator = parts.coordinator
    metadata = MetadataMetrics(parts.metadata, coordinator.metadata_failures, lambda: coordinator.publication_lag)
    tls = TlsMetrics(parts.tls, lambda: parts.stats.handshakes, parts.now_ms)
    ailments = {
        "failures of the metadata": metadata.ailments,
        "replicas that are not open": lambda: _not_open(parts.not_served()),
        "transactions that hang": transactions.ailments,
        "partitions in the remote tier": tier.ailments,
        "certificates of listeners": tls.ailments,
    }
    health = Health(is_live, image, store, store.statistics, broker_id, ailments, lambda: coordinator.has_session)
    location = location_for_readers(config)
    topics = topic_routes(parts.coordinator, store, KeptBatches(store), parts.authorizer, location, parts.tier)
    metadata_sources = image, store.statistics, broker_id, parts.not_served
    collector = BrokerCollector(parts.metrics, parts.stats, store.stats, parts.watch, *metadata_sources)
    logs = LogMetrics(parts.metrics.by_topic, of_partitions, image)
    groups = GroupMetrics(parts.groups, lambda topic, number: high_watermark(store, image(), topic, number))
    host, _ = config.http_listener or ("", 0)
    replication = ReplicationMetrics(store, parts.reads, parts.metrics.replication, parts.throttles, image, broker_id)
    controller = ControllerMetrics(parts.coordinator.counters, image)
    portions = [logs.portions, groups.portions, transactions.portions, replication.portions, tier.portions]
    everything = [*portions, controller.portions, metadata.portions, tls.portions]
    return build_app([*health.routes(), *topics], collector, everything, AllowedHosts(host, config.http_allowed_hosts))


def _not_open(not_served: Mapping[TopicIdPartition, str]) -> list[str]:
    return [f"{one.topic}-{one.partition} is not open here: {reason}" for one, reason in sorted(not_served.items())]
