"""Replication at `/metrics`: how far the others are behind what this broker leads, and who is in sync.

Names are those of Kafka's ReplicaManager and BrokerTopicMetrics through the JMX exporter. How late a follower is its
leader tells: a follower that cannot fetch does not know.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from coordinator.cluster.reassignments import enough_in_sync
from coordinator.cluster.settlement import min_isr
from engine.api import TopicPartition
from engine.errors import EngineError
from kafkawire.http.exposition import PORTION, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from coordinator.api import ClusterImage, PartitionState, TopicInfo
    from engine.store import SegmentStore
    from kafkawire.requests.metrics import ReplicationCounters
    from kafkawire.requests.throttles import Throttles


@dataclass(slots=True)
class _Follower:
    """What it lacks of the partition of which it lacks most, and of the one it has lacked something of for longest."""

    records: int = 0
    late_ms: int = 0


@dataclass(slots=True)
class _Found:
    """Of all that this broker leads."""

    under_min: int = 0
    at_min: int = 0


@dataclass(frozen=True, slots=True)
class ReplicationMetrics:
    """Of the partitions that this broker leads."""

    store: SegmentStore
    counters: ReplicationCounters
    throttles: Throttles
    image: Callable[[], ClusterImage]
    broker_id: int

    def portions(self) -> Iterator[bytes]:
        """The text, in pieces that cost little each."""
        image, found = self.image(), _Found()
        followers: defaultdict[int, _Follower] = defaultdict(_Follower)
        for number, (topic, partition, state) in enumerate(self._led(image)):
            if number % PORTION == 0:
                yield b""
            asked = enough_in_sync(state, min_isr(image, topic))
            found.under_min += len(state.isr) < asked
            found.at_min += len(state.isr) == asked
            if len(state.replicas) > 1:
                self._add(followers, TopicPartition(topic.topic_id, topic.name, partition))
        yield text_of([*_of_followers(followers), *self._of_all(found)])

    def _led(self, image: ClusterImage) -> Iterator[tuple[TopicInfo, int, PartitionState]]:
        for topic in image.topics.values():
            for number, state in enumerate(topic.partitions):
                if state.leader == self.broker_id:
                    yield topic, number, state

    def _add(self, followers: defaultdict[int, _Follower], partition: TopicPartition) -> None:
        try:
            lags = self.store.get(partition).follower_lags()
        except EngineError:
            return  # it is offline, as /health/cluster says
        for broker_id, lag in lags.items():
            one = followers[broker_id]
            one.records, one.late_ms = max(one.records, lag.offsets), max(one.late_ms, lag.late_ms)

    def _of_all(self, found: _Found) -> Iterator[Metric]:
        led, followed = self.throttles.leader.bytes_per_s, self.throttles.follower.bytes_per_s
        manager, counted, counters = "kafka_server_replicamanager_", "kafka_server_brokertopicmetrics_", self.counters
        for name, documentation, value in (
            (f"{manager}underminisrpartitioncount", "Led here, with fewer in sync than asked for.", found.under_min),
            (f"{manager}atminisrpartitioncount", "Led here, with no more in sync than asked for.", found.at_min),
            ("kafka_server_leaderreplication_byte_rate", "Fetched here in a second, of throttled replicas.", led),
            ("kafka_server_followerreplication_byte_rate", "Fetched by this broker, of throttled replicas.", followed),
        ):
            yield GaugeMetricFamily(name, documentation, value)
        for name, documentation, value in (
            (f"{manager}isrshrinks", "How often an ISR led here became smaller.", counters.isr_shrinks),
            (f"{manager}isrexpands", "How often an ISR led here became greater.", counters.isr_expands),
            (f"{counted}replicationbytesin", "Bytes fetched from leaders.", counters.bytes_in),
            (f"{counted}replicationbytesout", "Bytes fetched by followers.", counters.bytes_out),
        ):
            yield CounterMetricFamily(name, documentation, value)


def _of_followers(followers: defaultdict[int, _Follower]) -> Iterator[Metric]:
    records = GaugeMetricFamily(
        "kafkawire_replica_lag_records", "What a follower lacks of a partition led here, at most.", labels=["follower"]
    )
    late = GaugeMetricFamily(
        "kafkawire_replica_lag_seconds", "For how long it has lacked something of one, at most.", labels=["follower"]
    )
    for broker_id, one in sorted(followers.items()):
        records.add_metric([str(broker_id)], one.records)
        late.add_metric([str(broker_id)], one.late_ms / 1000)
    yield from (records, late)
