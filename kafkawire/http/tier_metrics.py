"""The remote tier at `/metrics`, and its problems for `/health/cluster`.

Kafka's names through the JMX exporter (its RemoteStorageMetrics: KIP-405, KIP-963), and those of Redpanda's public
metrics with the same meaning. Without a tier there are no such metrics, as in Kafka. Metrics of a topic are there while
the topic is in the tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kafkawire.http.exposition import add_durations, lines, text_of
from tiering.stores.counted import FAILURES, MISSING, OUTCOMES

if TYPE_CHECKING:
    from tiering.read.chunks import ChunkCache
    from tiering.statistics import TieredPartition, TierStatistics
    from tiering.stores.counted import CountedStore
    from tiering.upload.uploader import Uploader

# One lost request is no outage. The uploader tries again within 36 s, and a failed store is asked every 30 s: a store
# that is away for this long was asked more than once.
AWAY_S: Final = 45.0
# Normally a segment is copied within a minute after it was sealed. A wait of a quarter of an hour means a problem, or
# too few copiers. The disk is not full yet.
LATE_S: Final = 900.0

PARTITIONS_AT_ONCE: Final = 100  # about 1 to 2 ms

_TOPIC: Final = 'topic="%s"'
_REDPANDA_TOPIC: Final = 'redpanda_topic="%s"'


class WatchedDeletions(Protocol):
    """Deletions of topics from the tier, by the controller. `failing`: topics whose last attempt has failed."""

    @property
    def failing(self) -> int: ...
    @property
    def errors(self) -> int: ...


class WatchedTier(Protocol):
    """The parts of a broker's tier that are watched."""

    @property
    def store(self) -> CountedStore: ...
    @property
    def uploader(self) -> Uploader: ...
    @property
    def cache(self) -> ChunkCache: ...
    @property
    def deletions(self) -> WatchedDeletions: ...


@dataclass(slots=True)
class _Topic:
    """Sums over the partitions of a topic that this broker leads."""

    counted: TierStatistics
    lag_segments: int = 0
    lag_bytes: int = 0
    segments: int = 0
    size_bytes: int = 0
    doomed: int = 0
    doomed_bytes: int = 0

    def add(self, one: TieredPartition) -> None:
        self.lag_segments += one.lag.segments
        self.lag_bytes += one.lag.size_bytes
        self.segments += one.segment_count
        self.size_bytes += one.size_bytes
        self.doomed += one.doomed_count
        self.doomed_bytes += one.doomed_bytes


@dataclass(slots=True)
class _Partitions:
    """Sums over all partitions."""

    waiting_s: float = 0.0  # the longest wait
    troubled: int = 0


_COUNTERS: Final[tuple[tuple[str, str, Callable[[TierStatistics], int]], ...]] = (
    ("remotecopybytes", "Bytes copied to the tier.", lambda one: one.copied_bytes),
    ("remotecopyrequests", "Started uploads.", lambda one: one.copied_segments + one.copy_errors),
    ("remotecopyerrors", "Failed uploads.", lambda one: one.copy_errors),
    ("remotedeleterequests", "Deletions from the tier.", lambda one: one.deleted + one.delete_errors),
    ("remotedeleteerrors", "Deletions that failed.", lambda one: one.delete_errors),
    ("remotefetchbytes", "Bytes of records fetched from the tier.", lambda one: one.fetched_bytes),
    ("remotefetchrequests", "Fetches of records from the tier.", lambda one: one.fetches),
    ("remotefetcherrors", "Failed fetches of records from the tier.", lambda one: one.fetch_errors),
)
_GAUGES: Final[tuple[tuple[str, str, Callable[[_Topic], int]], ...]] = (
    ("remotecopylagbytes", "Bytes that wait to be copied.", lambda one: one.lag_bytes),
    ("remotecopylagsegments", "Segments that wait to be copied.", lambda one: one.lag_segments),
    ("remotedeletelagbytes", "Bytes that are to be deleted from the tier.", lambda one: one.doomed_bytes),
    ("remotedeletelagsegments", "Segments that are to be deleted from the tier.", lambda one: one.doomed),
    ("remotelogsizebytes", "Bytes in the tier.", lambda one: one.size_bytes + one.doomed_bytes),
    ("remotelogmetadatacount", "Segments in the tier.", lambda one: one.segments + one.doomed),
)
_OF_REDPANDA: Final[tuple[tuple[str, str, str, Callable[[_Topic], int]], ...]] = (
    ("uploaded_bytes", "counter", "Bytes copied to the tier.", lambda one: one.counted.copied_bytes),
    ("deleted_segments", "counter", "Deletions from the tier.", lambda one: one.counted.deleted),
    ("segments", "gauge", "Segments in the tier.", lambda one: one.segments),
    ("segments_pending_deletion", "gauge", "Segments that are to be deleted.", lambda one: one.doomed),
    ("cloud_log_size", "gauge", "Bytes of the log in the tier.", lambda one: one.size_bytes),
)


@dataclass(frozen=True, slots=True)
class TierMetrics:
    """Metrics of a broker's tier, if it has one."""

    tier: WatchedTier | None

    def portions(self) -> Iterator[bytes]:
        """The text, in small pieces; some are empty."""
        if self.tier is None:
            return
        topics: dict[str, _Topic] = {}
        partitions, counters = _Partitions(), self.tier.uploader.topics
        for number, one in enumerate(self.tier.uploader.partitions()):
            if number % PARTITIONS_AT_ONCE == 0:
                yield b""
            name = one.partition.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = _Topic(counters.of(one.partition.topic_id))
            topic.add(one)
            partitions.waiting_s = max(partitions.waiting_s, one.waiting_s)
            partitions.troubled += one.problem is not None
        yield from _of_topics(topics)
        yield from _of_client(self.tier.store)
        yield text_of([*_of_store(self.tier.store), *_of_all(self.tier, partitions)])

    def ailments(self) -> Iterable[str]:
        """Problems that an operator should check, as texts."""
        if self.tier is None:
            return
        store = self.tier.store
        if store.away_s > AWAY_S:
            yield f"the store of the remote tier is away, for {_duration(store.away_s)}: {store.last_error}"
        late: list[TieredPartition] = []
        for one in self.tier.uploader.ailing(LATE_S):
            if one.problem is not None:
                state = "is fenced in the remote tier" if one.is_fenced else "has trouble with the remote tier"
                yield f"{_name(one)} {state}: {one.problem}"
            else:
                late.append(one)
        if late:
            oldest = max(late, key=lambda one: one.waiting_s)
            more = f", and {len(late) - 1:,} more for over {_duration(LATE_S)}" if len(late) > 1 else ""
            yield f"{_name(oldest)} has waited for {_duration(oldest.waiting_s)} to be copied to the remote tier{more}"


def _of_topics(topics: dict[str, _Topic]) -> Iterator[bytes]:
    kafka, redpanda = "kafka_server_brokertopicmetrics_", "redpanda_cloud_storage_"
    for name, documentation, counted in _COUNTERS:
        samples = [(topic, counted(one.counted)) for topic, one in topics.items()]
        yield from lines(f"{kafka}{name}_total", documentation, "counter", _TOPIC, samples)
    for name, documentation, value in _GAUGES:
        samples = [(topic, value(one)) for topic, one in topics.items()]
        yield from lines(f"{kafka}{name}", documentation, "gauge", _TOPIC, samples)
    for name, kind, documentation, value in _OF_REDPANDA:
        samples = [(topic, value(one)) for topic, one in topics.items()]
        yield from lines(f"{redpanda}{name}", documentation, kind, _REDPANDA_TOPIC, samples)


def _of_client(store: CountedStore) -> Iterator[bytes]:
    """Counters that Redpanda has without `_total`."""
    operations = store.statistics.operations
    not_found = sum(one.outcomes[MISSING] for one in operations.values())
    for name, documentation, value in (
        ("uploads", "Requests to put an object.", operations["put"].latency.count),
        ("downloads", "Requests to get an object.", operations["get"].latency.count),
        ("not_found", "Requests for an object that was not there.", not_found),
    ):
        yield from lines(f"redpanda_cloud_client_{name}", documentation, "counter", "", [(value,)])


def _of_store(store: CountedStore) -> Iterator[Metric]:
    counted = store.statistics
    labels = ["operation", "outcome"]
    requests = CounterMetricFamily("kafkawire_tier_requests", "Requests of the store.", labels=labels)
    text = "Time of requests of the store."
    latency = HistogramMetricFamily("kafkawire_tier_request_latency_seconds", text, labels=["operation"])
    for operation, one in counted.operations.items():
        for outcome in OUTCOMES:
            if outcome in one.outcomes or outcome in FAILURES:
                requests.add_metric([operation, outcome], one.outcomes[outcome])
        add_durations(latency, [operation], one.latency)
    yield from (requests, latency)
    yield CounterMetricFamily("kafkawire_tier_sent_bytes", "Bytes put into the store.", counted.sent_bytes)
    yield CounterMetricFamily("kafkawire_tier_received_bytes", "Bytes got from the store.", counted.received_bytes)
    name = "kafkawire_tier_store_away_seconds"
    yield GaugeMetricFamily(name, "Time since the store stopped answering.", store.away_s)
    errors = CounterMetricFamily(
        "redpanda_cloud_storage_errors", "Requests that failed.", labels=["redpanda_direction"]
    )
    errors.add_metric(["tx"], counted.operations["put"].failures)
    errors.add_metric(["rx"], counted.operations["get"].failures)
    yield errors


def _of_all(tier: WatchedTier, partitions: _Partitions) -> Iterator[Metric]:
    total, cache = tier.uploader.topics.total, tier.cache
    text = "Uploaded segments."
    yield CounterMetricFamily("redpanda_cloud_storage_segment_uploads", text, total.copied_segments)
    text = "Manifests that were deleted because no reader needs them."
    yield CounterMetricFamily("kafkawire_tier_manifests_collected", text, total.collected)
    text = "Age of the oldest segment that waits for its upload."
    yield GaugeMetricFamily("kafkawire_tier_copy_oldest_seconds", text, partitions.waiting_s)
    text = "Partitions that are fenced or damaged in the tier."
    yield GaugeMetricFamily("kafkawire_tier_partitions_troubled", text, partitions.troubled)
    text = "Failed attempts to delete a deleted topic from the tier."
    yield CounterMetricFamily("kafkawire_tier_topic_deletion_errors", text, tier.deletions.errors)
    text = "Deleted topics whose last deletion from the tier failed."
    yield GaugeMetricFamily("kafkawire_tier_topic_deletions_failing", text, tier.deletions.failing)
    text = "Bytes of the tier cache."
    yield GaugeMetricFamily("redpanda_cloud_storage_cache_space_size_bytes", text, cache.size_bytes)
    yield GaugeMetricFamily("redpanda_cloud_storage_cache_space_files", "Files of the tier cache.", cache.file_count)
    text = "Chunks evicted from the tier cache."
    yield CounterMetricFamily("kafkawire_tier_cache_evictions", text, cache.statistics.evicted)


def _name(one: TieredPartition) -> str:
    return f"{one.partition.topic}-{one.partition.partition}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:,.0f} minutes"
