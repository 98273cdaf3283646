"""Groups, their offsets and their lag at `/metrics`, computed at each scrape, a portion at a time.

Names are known to dashboards: those of Kafka's GroupCoordinatorMetrics through the JMX exporter, of kafka_exporter, and
of Redpanda. Lag is the high watermark less the committed offset, never below zero. If this broker does not know the
high watermark, there is no lag.

A broker may have a hundred thousand committed offsets. Groups beyond `SAMPLES_MAX` are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UnknownMetricFamily

from coordinator.groups.api import CLASSIC, GroupFigures, GroupState, GroupStatistics
from kafkawire.http.exposition import PORTION, escaped, lines, text_of

SAMPLES_MAX: Final = 100_000  # groups and their offsets

HighWatermark = Callable[[str, int], int | None]  # of a topic's partition

_KAFKA: Final = "kafka_server_group_coordinator_metrics_"
_EXPORTER: Final = "kafka_consumergroup_"
_REDPANDA: Final = "redpanda_kafka_consumer_group_"
_EXPORTER_GROUP: Final = 'consumergroup="%s"'
_EXPORTER_PARTITION: Final = 'consumergroup="%s",partition="%d",topic="%s"'
_REDPANDA_GROUP: Final = 'redpanda_group="%s"'
_REDPANDA_PARTITION: Final = 'redpanda_group="%s",redpanda_partition="%d",redpanda_topic="%s"'

_OfGroup = tuple[str, int]  # labels and value, in the order of a line
_OfPartition = tuple[str, int, str, int]


@dataclass(slots=True)
class _Found:
    """Samples by family, because the samples of a family must be together."""

    states: dict[GroupState, int] = field(default_factory=lambda: dict.fromkeys(GroupState, 0))
    offset_count: int = 0
    left_out: int = 0
    members: list[_OfGroup] = field(default_factory=list)
    committed: list[_OfPartition] = field(default_factory=list)
    lags: list[_OfPartition] = field(default_factory=list)
    lag_sums: list[_OfGroup] = field(default_factory=list)
    lag_maxima: list[_OfGroup] = field(default_factory=list)


class GroupMetrics:
    """Metrics of the groups that this broker coordinates."""

    def __init__(
        self, statistics: GroupStatistics, high_watermark: HighWatermark, samples_max: int = SAMPLES_MAX
    ) -> None:
        self._statistics = statistics
        self._high_watermark = high_watermark
        self._samples_max = samples_max

    def portions(self) -> Iterator[bytes]:
        """The text, in small pieces; some are empty."""
        found = _Found()
        for figures in self._statistics.figures():
            found.states[figures.state] += 1
            found.offset_count += len(figures.offsets)
            if len(found.members) + len(found.committed) + len(figures.offsets) < self._samples_max:
                yield from self._group_samples(figures, found)
            else:
                found.left_out += 1
                yield b""
        yield text_of(self._of_counts(found))
        for name, documentation, labels, samples in _families(found):
            yield from lines(name, documentation, "gauge", labels, samples)

    def _group_samples(self, figures: GroupFigures, found: _Found) -> Iterator[bytes]:
        group = escaped(figures.group_id)
        found.members.append((group, figures.member_count))
        lags: list[int] = []
        for number, ((topic, partition), offset) in enumerate(figures.offsets):
            if number % PORTION == 0:
                yield b""
            found.committed.append((group, partition, topic, offset))
            high_watermark = self._high_watermark(topic, partition)
            if high_watermark is not None:
                lags.append(max(0, high_watermark - offset))
                found.lags.append((group, partition, topic, lags[-1]))
        if lags:
            found.lag_sums.append((group, sum(lags)))
            found.lag_maxima.append((group, max(lags)))
        yield b""

    def _of_counts(self, found: _Found) -> Iterator[Metric]:
        counters = self._statistics.counters
        groups = UnknownMetricFamily(f"{_KAFKA}group_count", "Groups, by protocol.", labels=["protocol"])
        groups.add_metric([CLASSIC], sum(found.states.values()))
        yield groups
        states = UnknownMetricFamily(f"{_KAFKA}classic_group_count", "Groups, by state.", labels=["state"])
        for state, count in found.states.items():
            states.add_metric([state.value], count)
        yield states
        for name, documentation, value in (
            ("offset_count", "Committed offsets in the cache.", found.offset_count),
            ("offset_commit_count", "Offsets committed.", counters.commits),
            ("offset_expiration_count", "Expired offsets.", counters.expired_offsets),
            ("group_completed_rebalance_count", "Completed rebalances.", counters.generations),
        ):
            yield UnknownMetricFamily(_KAFKA + name, documentation, value)  # the type that the JMX exporter gives them
        yield CounterMetricFamily(
            "kafkawire_group_members_expired", "Members removed after their session timeout.", counters.expired_members
        )
        yield GaugeMetricFamily(
            "kafkawire_groups_left_out", "Groups without a series of their own, as they are too many.", found.left_out
        )


def _families(found: _Found) -> Iterable[tuple[str, str, str, Sequence[_OfGroup] | Sequence[_OfPartition]]]:
    yield f"{_EXPORTER}members", "Members of a group.", _EXPORTER_GROUP, found.members
    yield f"{_EXPORTER}current_offset", "Committed offset.", _EXPORTER_PARTITION, found.committed
    yield f"{_EXPORTER}lag", "Records behind the committed offset.", _EXPORTER_PARTITION, found.lags
    yield f"{_REDPANDA}consumers", "Members of a group.", _REDPANDA_GROUP, found.members
    yield f"{_REDPANDA}committed_offset", "Committed offset.", _REDPANDA_PARTITION, found.committed
    yield f"{_REDPANDA}lag_sum", "Lag of a group over its partitions.", _REDPANDA_GROUP, found.lag_sums
    yield f"{_REDPANDA}lag_max", "Greatest lag of a group in a partition.", _REDPANDA_GROUP, found.lag_maxima
