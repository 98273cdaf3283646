"""The HTTP application of a broker, assembled from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.append_at_offset import KeptBatches
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
from kafkawire.http.topic_routes import topic_routes
from kafkawire.http.transaction_metrics import TransactionMetrics
from kafkawire.requests.topic_lookup import high_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.api import ClusterImage
    from coordinator.cluster_manager import ClusterManager
    from coordinator.groups.api import GroupStatistics
    from coordinator.transactions.api import TransactionStatistics
    from engine.api import TopicPartition
    from engine.store import SegmentStore
    from engine.waiting_reads import WaitingReads
    from kafkawire.config.broker_config import Config
    from kafkawire.http.app import App
    from kafkawire.http.metadata_metrics import WatchedStore
    from kafkawire.http.tier_metrics import WatchedTier
    from kafkawire.requests.context import Authorizer
    from kafkawire.requests.metrics import RequestMetrics
    from kafkawire.requests.throttles import Throttles
    from kafkawire.server.loop_watch import LoopWatch
    from kafkawire.server.stats import ServerStats


class Shown(NamedTuple):
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
    not_served: Callable[[], Mapping[TopicPartition, str]]
    metadata: WatchedStore
    reads: WaitingReads


def whole_app(of: Shown, is_live: Callable[[], bool]) -> App:
    """Build the application: health, metrics, topics."""
    store, config = of.store, of.config

    def image() -> ClusterImage:
        return of.coordinator.image

    of_partitions, me = store.partition_statistics, config.node_id
    transactions = TransactionMetrics(of.transactions, of_partitions, of.now_ms, config.transaction_timeout_max_ms)
    tier = TierMetrics(of.tier)
    coordinator = of.coordinator
    metadata = MetadataMetrics(of.metadata, coordinator.metadata_failures, lambda: coordinator.publication_lag)
    ailments = {
        "failures of the metadata": metadata.ailments,
        "replicas that are not open": lambda: _not_open(of.not_served()),
        "transactions that hang": transactions.ailments,
        "partitions in the remote tier": tier.ailments,
    }
    health = Health(is_live, image, store, store.statistics, me, ailments, lambda: coordinator.has_session)
    topics = topic_routes(of.coordinator, store, KeptBatches(store), of.authorizer, config.tier_store, of.tier)
    around = image, store.statistics, me, of.not_served
    collector = BrokerCollector(of.metrics, of.stats, store.stats, of.watch, *around)
    logs = LogMetrics(of.metrics.by_topic, of_partitions, image)
    groups = GroupMetrics(of.groups, lambda topic, number: high_watermark(store, image(), topic, number))
    host, _ = config.http_listener or ("", 0)
    replication = ReplicationMetrics(store, of.reads, of.metrics.replication, of.throttles, image, me)
    controller = ControllerMetrics(of.coordinator.counters, image)
    portions = [logs.portions, groups.portions, transactions.portions, replication.portions, tier.portions]
    everything = [*portions, controller.portions, metadata.portions]
    return build_app([*health.routes(), *topics], collector, everything, AllowedHosts(host, config.http_allowed_hosts))


def _not_open(not_served: Mapping[TopicPartition, str]) -> list[str]:
    return [f"{one.topic}-{one.partition} is not open here: {reason}" for one, reason in sorted(not_served.items())]
