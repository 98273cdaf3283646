"""`/metrics`: the broker's plain counters as Prometheus metrics, read at each scrape.

Names follow the JMX exporter's where dashboards know one (Kafka's BrokerTopicMetrics, RequestMetrics, ReplicaManager
…), and Redpanda's; the others begin with `kafkawire_`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.api import ClusterImage
from engine.api import TopicIdPartition
from engine.stats import LogDirStatistics, Reason, StoreStats
from kafkawire.http.exposition import add_durations
from kafkawire.http.health import leads
from kafkawire.requests.metrics import RequestMetrics
from kafkawire.server.stats import ServerStats

if TYPE_CHECKING:
    from kafkawire.server.loop_watch import LoopWatch

# Redpanda's names of Produce and Fetch, for its dashboards.
REDPANDA_REQUESTS: Final = {"produce": "produce", "fetch": "consume"}


@dataclass(frozen=True, slots=True, eq=False)
class BrokerCollector(Collector):
    """Makes metrics from counters at each scrape."""

    requests: RequestMetrics
    server: ServerStats
    storage: StoreStats
    loop: LoopWatch
    image: Callable[[], ClusterImage]
    log_dirs: Callable[[], Sequence[LogDirStatistics]]
    broker_id: int
    not_served: Callable[[], Collection[TopicIdPartition]] = tuple  # of hosted partitions

    def describe(self) -> list[Metric]:
        """Describe nothing: the registration must not scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from self._of_requests()
        yield from self._of_connections()
        yield from self._of_cluster()
        yield from self._of_log_dirs()
        yield from self._of_loop()
        yield from self._of_storage()
        yield from self._of_cleaner()

    def _of_requests(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("kafkawire_requests", "Started requests.", labels=["request"])
        failures = CounterMetricFamily(
            "kafkawire_request_failures", "Requests that ended with an unexpected exception.", labels=["request"]
        )
        text = "Time from the last byte of a request to its response."
        latency = HistogramMetricFamily("kafkawire_request_latency_seconds", text, labels=["request"])
        redpanda = HistogramMetricFamily("redpanda_kafka_request_latency_seconds", text, labels=["redpanda_request"])
        for api in self.requests.by_api.values():
            counts.add_metric([api.name], api.requests)
            failures.add_metric([api.name], api.failures)
            add_durations(latency, [api.name], api.latency)
            if api.name in REDPANDA_REQUESTS:
                add_durations(redpanda, [REDPANDA_REQUESTS[api.name]], api.latency)
        violations = CounterMetricFamily(
            "kafkawire_protocol_violations", "Connections closed after bytes that are not a request."
        )
        violations.add_metric([], self.requests.protocol_violations)
        unserved = CounterMetricFamily(
            "kafkawire_fetch_unserved_reads", "Reads without records, which left the memory before they were sent."
        )
        unserved.add_metric([], self.requests.unserved_reads)
        yield from (counts, failures, latency, redpanda, violations, unserved)

    def _of_connections(self) -> Iterator[Metric]:
        stats = self.server
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
        yield GaugeMetricFamily("kafkawire_in_flight_bytes", "Bytes of requests in memory.", stats.in_flight_size_bytes)
        text = "Connections that are not read because queued.max.request.bytes is reached."
        yield GaugeMetricFamily("kafkawire_connections_paused", text, stats.connections_paused)
        text = "Bytes of client requests without a sent response."
        yield GaugeMetricFamily("kafkawire_unanswered_request_bytes", text, stats.unanswered_size_bytes)
        text = "Connections that are not read because their unanswered Produce requests hold too many bytes."
        yield GaugeMetricFamily("kafkawire_connections_muted", text, stats.connections_muted)
        yield CounterMetricFamily(
            "kafkawire_connection_pauses", "Pauses of connections for queued.max.request.bytes.", stats.pauses
        )

    def _of_cluster(self) -> Iterator[Metric]:
        image = self.image()
        states = [state for topic in image.topics.values() for state in topic.partitions]
        led = [state for state in states if state.leader == self.broker_id]
        hosted = sum(self.broker_id in state.replicas for state in states)
        under_replicated = sum(len(state.isr) < len(state.replicas) for state in led)
        reassigning = sum(bool(state.adding or state.removing) for state in led)
        offline, not_served = sum(not leads(state, image) for state in states), self.not_served()
        offline += sum(self._is_led(one, image) for one in not_served)  # the metadata do not show it yet
        is_controller = image.controller_id == self.broker_id
        for name, documentation, value in (
            ("kafka_server_replicamanager_partitioncount", "Partitions of this broker.", hosted),
            (
                "kafka_server_replicamanager_offlinereplicacount",
                "Replicas of this broker that are not open.",
                len(not_served),
            ),
            ("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", len(led)),
            (
                "kafka_server_replicamanager_underreplicatedpartitions",
                "Partitions led by this broker with replicas outside the ISR.",
                under_replicated,
            ),
            (
                "kafka_server_replicamanager_reassigningpartitions",
                "Partitions led by this broker with a reassignment in progress.",
                reassigning,
            ),
            ("kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller.", int(is_controller)),
            ("kafka_controller_kafkacontroller_activebrokercount", "Brokers.", len(image.brokers)),
            ("kafka_controller_kafkacontroller_globaltopiccount", "Topics.", len(image.topics)),
            ("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions.", len(states)),
            (
                "kafka_controller_kafkacontroller_offlinepartitionscount",
                "Partitions without an available leader.",
                offline,
            ),
            ("redpanda_cluster_brokers", "Brokers.", len(image.brokers)),
            ("redpanda_cluster_topics", "Topics.", len(image.topics)),
            ("redpanda_cluster_partitions", "Partitions.", len(states)),
            ("redpanda_cluster_unavailable_partitions", "Partitions without an available leader.", offline),
        ):
            yield GaugeMetricFamily(name, documentation, value)

    def _is_led(self, partition: TopicIdPartition, image: ClusterImage) -> bool:
        state = image.partition(partition.topic, partition.partition)
        return state is not None and state.leader == self.broker_id and leads(state, image)

    def _of_log_dirs(self) -> Iterator[Metric]:
        dirs = self.log_dirs()
        offline = sum(one.offline_reason is not None for one in dirs)
        name = "kafka_log_logmanager_offlinelogdirectorycount"
        yield GaugeMetricFamily(name, "Log dirs that are offline.", offline)
        behind_s = [one.behind_s for one in dirs if one.behind_s is not None]
        help_text = "Log dirs whose disk is too slow to apply role changes."
        yield GaugeMetricFamily("kafkawire_log_dirs_behind", help_text, len(behind_s))
        age = "Time since the first of them last applied a role change."
        yield GaugeMetricFamily("kafkawire_log_dirs_behind_max_seconds", age, max(behind_s, default=0.0))
        online = GaugeMetricFamily("kafkawire_log_dir_online", "1 while a log dir is online.", labels=["dir"])
        partitions = GaugeMetricFamily("kafkawire_log_dir_partitions", "Partitions of a log dir.", labels=["dir"])
        unflushed = GaugeMetricFamily(
            "kafkawire_unflushed_bytes", "Bytes in segment files that are not synced there, perhaps in the journal.",
            labels=["dir"],
        )  # fmt: skip
        strays = GaugeMetricFamily(
            "kafkawire_strays", "Stray logs: logs that the metadata does not name.", labels=["dir"]
        )
        stray_bytes = GaugeMetricFamily("kafkawire_stray_bytes", "Bytes of stray logs.", labels=["dir"])
        rounds = HistogramMetricFamily(
            "kafkawire_write_latency_seconds",
            "Time of a commit batch, from its first append to its acknowledgements.",
            labels=["dir"],
        )
        syncs = HistogramMetricFamily(
            "kafkawire_sync_latency_seconds", "Time of the sync of a commit batch.", labels=["dir"]
        )
        for one in dirs:
            online.add_metric([one.path], int(one.offline_reason is None))
            partitions.add_metric([one.path], one.partition_count)
            unflushed.add_metric([one.path], one.unflushed_size_bytes)
            strays.add_metric([one.path], one.stray_count)
            stray_bytes.add_metric([one.path], one.stray_size_bytes)
            add_durations(rounds, [one.path], one.commits.commit_batches)
            add_durations(syncs, [one.path], one.commits.syncs)
        yield from (online, partitions, unflushed, strays, stray_bytes, rounds, syncs)

    def _of_storage(self) -> Iterator[Metric]:
        stats = self.storage
        segments = CounterMetricFamily("kafkawire_segments_removed", "Deleted segments.", labels=["reason"])
        removed = CounterMetricFamily(
            "kafkawire_segments_removed_bytes", "Bytes of deleted segments.", labels=["reason"]
        )
        for reason in Reason:
            segments.add_metric([reason.value], stats.removed_segments[reason])
            removed.add_metric([reason.value], stats.removed_bytes[reason])
        yield from (segments, removed)
        yield CounterMetricFamily("kafkawire_segments_sealed", "Segments sealed.", stats.sealed_segments)
        scrubbed = "Bytes of segments read to seal or to scrub them."
        yield CounterMetricFamily("kafkawire_scrubbed_bytes", scrubbed, stats.scrubbed_bytes)
        yield CounterMetricFamily(
            "kafkawire_damage_found", "Damaged segments that the scrubber has found.", stats.damage_found
        )

    def _of_cleaner(self) -> Iterator[Metric]:
        """Kafka's LogCleaner and LogCleanerManager. Values of cleaner threads are those of the last pass here."""
        stats = self.storage.cleaner
        last, looked_s = stats.last, stats.looked_at_s
        idle_ms = 0 if looked_s is None else (trio.current_time() - looked_s) * 1000
        recopied = 100 * last.written_bytes / last.read_bytes if last.read_bytes else 0
        of_manager, of_cleaner = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"
        for name, documentation, value in (
            (
                f"{of_manager}max_dirty_percent",
                "New share of the dirtiest log, in percent.",
                100 * stats.dirtiest_ratio,
            ),
            (
                f"{of_manager}time_since_last_run_ms",
                "Time since the cleaner's last check for logs to compact.",
                idle_ms,
            ),
            (
                f"{of_cleaner}cleaner_recopy_percent",
                "Bytes written by compaction, in percent of the bytes read.",
                recopied,
            ),
            (f"{of_cleaner}max_clean_time_secs", "Time of the last compaction of a log.", last.duration_s),
            (
                f"{of_cleaner}max_buffer_utilization_percent",
                "Used share of the cleaner's key map, in percent.",
                100 * last.buffer_ratio,
            ),
            (f"{of_cleaner}deadthreadcount", "Always 0: an error in the cleaner ends the broker.", 0),
        ):
            yield GaugeMetricFamily(name, documentation, value)
        name = f"{of_manager}uncleanable_partitions_count"
        given_up = GaugeMetricFamily(name, "Logs that the cleaner has given up.", labels=["logdirectory"])
        for path, count in stats.given_up.items():
            given_up.add_metric([path], count)
        yield given_up
        yield CounterMetricFamily("kafkawire_compactions", "Logs compacted.", stats.passes)
        yield CounterMetricFamily(
            "kafkawire_compaction_read_bytes", "Bytes of segments that compaction read.", stats.read_bytes
        )
        yield CounterMetricFamily(
            "kafkawire_compaction_written_bytes", "Bytes of segments that compaction wrote.", stats.written_bytes
        )

    def _of_loop(self) -> Iterator[Metric]:
        lag = HistogramMetricFamily("kafkawire_event_loop_lag_seconds", "Lag of the event loop.", labels=[])
        add_durations(lag, [], self.loop.lag)
        yield lag
        name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
        yield GaugeMetricFamily(name, "Idle share of the event loop, from 0 to 1.", self.loop.idle_ratio)
        busy = "CPU time of the event loop."
        yield CounterMetricFamily("redpanda_cpu_busy_seconds", busy, self.loop.busy_s)
