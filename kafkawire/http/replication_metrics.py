"""Replication at `/metrics`: lag of the followers of led partitions, and their ISRs.

Names are those of Kafka's ReplicaManager and BrokerTopicMetrics through the JMX exporter. The leader measures how late
a follower is: a follower that cannot fetch does not know.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from coordinator.controller.reassignments import enough_in_sync
from coordinator.controller.reconcile import min_isr
from engine.api import TopicIdPartition, WaitingAppends
from engine.errors import EngineError
from kafkawire.http.exposition import PORTION, add_durations, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from coordinator.api import ClusterImage, PartitionState, TopicInfo
    from engine.store import SegmentStore
    from engine.waiting_reads import WaitingReads
    from kafkawire.requests.metrics import ReplicationCounters
    from kafkawire.requests.throttles import Throttles


@dataclass(slots=True)
class _Follower:
    """Lag of a follower: the largest number of records, and the longest time, in any partition."""

    records: int = 0
    late_ms: int = 0


@dataclass(slots=True)
class _Found:
    """Sums over all partitions that this broker leads."""

    under_min: int = 0
    at_min: int = 0
    waiting: WaitingAppends = field(default_factory=WaitingAppends)
    stale: int = 0


@dataclass(frozen=True, slots=True)
class ReplicationMetrics:
    """Metrics of the partitions that this broker leads."""

    store: SegmentStore
    reads: WaitingReads
    counters: ReplicationCounters
    throttles: Throttles
    image: Callable[[], ClusterImage]
    broker_id: int

    def portions(self) -> Iterator[bytes]:
        """The text, in small pieces."""
        image, found = self.image(), _Found()
        followers: defaultdict[int, _Follower] = defaultdict(_Follower)
        for number, (topic, partition, state) in enumerate(self._led(image)):
            if number % PORTION == 0:
                yield b""
            required = enough_in_sync(state, min_isr(image, topic))
            found.under_min += len(state.isr) < required
            found.at_min += len(state.isr) == required
            if len(state.replicas) > 1:
                self._add(found, followers, TopicIdPartition(topic.topic_id, topic.name, partition))
        yield text_of([*_of_followers(followers), *self._of_all(found), self._round_trips()])

    def _led(self, image: ClusterImage) -> Iterator[tuple[TopicInfo, int, PartitionState]]:
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                if state.leader == self.broker_id:
                    yield topic, number, state

    def _add(self, found: _Found, followers: defaultdict[int, _Follower], partition: TopicIdPartition) -> None:
        try:
            log = self.store.get(partition)
            lags = log.followers.lags()
        except EngineError:
            return  # it is offline, as /health/cluster shows
        found.waiting = found.waiting.plus(log.waiting_appends)
        found.stale += not log.is_current
        for broker_id, lag in lags.items():
            one = followers[broker_id]
            one.records, one.late_ms = max(one.records, lag.offsets), max(one.late_ms, lag.late_ms)

    def _round_trips(self) -> Metric:
        text = "Time from a Fetch response to the follower's next Fetch: its append and sync, and the network."
        family = HistogramMetricFamily("kafkawire_follower_round_trip_seconds", text, labels=["follower"])
        for broker_id, durations in sorted(self.counters.round_trips.items()):
            add_durations(family, [str(broker_id)], durations)
        return family

    def _of_all(self, found: _Found) -> Iterator[Metric]:
        led, followed = self.throttles.leader.bytes_per_s, self.throttles.follower.bytes_per_s
        waiting = found.waiting
        waited_s = max(0.0, trio.current_time() - waiting.since_s) if waiting.appends else 0.0
        manager, counted, counters = "kafka_server_replicamanager_", "kafka_server_brokertopicmetrics_", self.counters
        for name, documentation, value in (
            (
                f"{manager}underminisrpartitioncount",
                "Partitions led by this broker with an ISR below min.insync.replicas.",
                found.under_min,
            ),
            (
                f"{manager}atminisrpartitioncount",
                "Partitions led by this broker with an ISR of exactly min.insync.replicas.",
                found.at_min,
            ),
            ("kafkawire_waiting_appends", "Appends that wait for the high watermark.", waiting.appends),
            (
                "kafkawire_waiting_appends_bytes",
                "Bytes of appends that wait for the high watermark.",
                waiting.size_bytes,
            ),
            (
                "kafkawire_waiting_appends_seconds",
                "Age of the oldest append that waits for the high watermark.",
                waited_s,
            ),
            (
                "kafkawire_stale_leaders",
                "Partitions led without a metadata session and without Fetches of enough followers.",
                found.stale,
            ),
            (
                "kafkawire_waiting_reads",
                "Reads that wait until followers or the metadata confirm the leader.",
                len(self.reads),
            ),
            ("kafka_server_leaderreplication_byte_rate", "Bytes that throttled followers fetched in a second.", led),
            (
                "kafka_server_followerreplication_byte_rate",
                "Bytes that this broker fetched in a second for throttled replicas.",
                followed,
            ),
        ):
            yield GaugeMetricFamily(name, documentation, value)
        for name, documentation, value in (
            (f"{manager}isrshrinks", "ISR shrinks of partitions led by this broker.", counters.isr_shrinks),
            (f"{manager}isrexpands", "ISR expansions of partitions led by this broker.", counters.isr_expands),
            ("kafkawire_replica_truncations", "Followers' logs truncated by their leader.", counters.truncations),
            ("kafkawire_replica_restarts", "Followers' logs discarded and copied again.", counters.restarts),
            (
                "kafkawire_replica_failures",
                "Followers closed because their log contradicts the leader's.",
                counters.failures,
            ),
            (f"{counted}replicationbytesin", "Bytes fetched from leaders.", counters.bytes_in),
            (f"{counted}replicationbytesout", "Bytes fetched by followers.", counters.bytes_out),
        ):
            yield CounterMetricFamily(name, documentation, value)


def _of_followers(followers: defaultdict[int, _Follower]) -> Iterator[Metric]:
    records = GaugeMetricFamily(
        "kafkawire_replica_lag_records",
        "Greatest lag of a follower over partitions led by this broker, in records.",
        labels=["follower"],
    )
    late = GaugeMetricFamily(
        "kafkawire_replica_lag_seconds",
        "Greatest lag of a follower over partitions led by this broker, in time.",
        labels=["follower"],
    )
    for broker_id, one in sorted(followers.items()):
        records.add_metric([str(broker_id)], one.records)
        late.add_metric([str(broker_id)], one.late_ms / 1000)
    yield from (records, late)
