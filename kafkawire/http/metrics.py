"""`/metrics`: the broker's plain counters as Prometheus metrics, read when they are asked for.

Names follow the JMX exporter's where dashboards know one (Kafka's BrokerTopicMetrics and RequestMetrics); the others
begin with `kafkawire_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.api import ClusterImage
from engine.retention import Reason
from engine.stats import StoreStats
from kafkawire.request_metrics import BUCKETS_MS, RequestMetrics
from kafkawire.server_stats import ServerStats


class BrokerCollector(Collector):
    """Turns counters into metrics at each scrape."""

    def __init__(
        self,
        requests: RequestMetrics,
        server: ServerStats,
        storage: StoreStats,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._requests = requests
        self._server = server
        self._storage = storage
        self._image = image

    def describe(self) -> list[Metric]:
        """Nothing up front: registering must not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from self._of_requests()
        yield from self._of_connections()
        yield from self._of_cluster()
        yield from self._of_storage()

    def _of_requests(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("kafkawire_requests", "Requests begun.", labels=["request"])
        failures = CounterMetricFamily("kafkawire_request_failures", "Requests that hit a bug.", labels=["request"])
        latency = HistogramMetricFamily(
            "kafkawire_request_latency_seconds", "From the request's last byte to its reply.", labels=["request"]
        )
        for api in self._requests.by_api.values():
            counts.add_metric([api.name], api.requests)
            failures.add_metric([api.name], api.failures)
            bounds = [*(str(bound / 1000) for bound in BUCKETS_MS), "+Inf"]
            buckets = list(zip(bounds, accumulate(api.in_bucket), strict=True))
            latency.add_metric([api.name], buckets, api.latency_sum_ms / 1000)
        violations = CounterMetricFamily(
            "kafkawire_protocol_violations", "Connections closed for bytes that are no request."
        )
        violations.add_metric([], self._requests.protocol_violations)
        yield from (counts, failures, latency, violations)

    def _of_connections(self) -> Iterator[Metric]:
        stats = self._server
        yield GaugeMetricFamily("kafkawire_connections_open", "Open connections.", stats.connections_open)
        yield CounterMetricFamily("kafkawire_connections_accepted", "Accepted connections.", stats.connections_accepted)
        refused = CounterMetricFamily("kafkawire_connections_refused", "Refused connections.", labels=["limit"])
        refused.add_metric(["max.connections"], stats.connections_refused_total)
        refused.add_metric(["max.connections.per.ip"], stats.connections_refused_per_ip)
        yield refused
        closed = CounterMetricFamily("kafkawire_connections_closed", "Closed connections.", labels=["reason"])
        for reason, count in stats.closed.items():
            closed.add_metric([reason.name.lower()], count)
        yield closed
        yield CounterMetricFamily("kafkawire_received_bytes", "Bytes received.", stats.received_size_bytes)
        yield CounterMetricFamily("kafkawire_sent_bytes", "Bytes sent.", stats.sent_size_bytes)
        yield GaugeMetricFamily("kafkawire_in_flight_bytes", "Request bytes held.", stats.in_flight_size_bytes)

    def _of_cluster(self) -> Iterator[Metric]:
        topics = self._image().topics.values()
        partitions = sum(len(topic.partitions) for topic in topics)
        yield GaugeMetricFamily("kafka_server_replicamanager_partitioncount", "Partitions of this broker.", partitions)
        yield GaugeMetricFamily("kafka_controller_kafkacontroller_globaltopiccount", "Topics.", len(topics))

    def _of_storage(self) -> Iterator[Metric]:
        stats = self._storage
        segments = CounterMetricFamily("kafkawire_segments_removed", "Segments removed.", labels=["reason"])
        removed = CounterMetricFamily("kafkawire_segments_removed_bytes", "Their sizes.", labels=["reason"])
        for reason in Reason:
            segments.add_metric([reason.value], stats.removed_segments[reason])
            removed.add_metric([reason.value], stats.removed_bytes[reason])
        yield from (segments, removed)
        yield CounterMetricFamily("kafkawire_segments_sealed", "Segments sealed.", stats.sealed_segments)
        scrubbed = "Bytes of segments read to be sealed, or again."
        yield CounterMetricFamily("kafkawire_scrubbed_bytes", scrubbed, stats.scrubbed_bytes)
        yield CounterMetricFamily("kafkawire_damage_found", "What scrubbing found wrong.", stats.damage_found)
