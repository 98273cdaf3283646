"""Topics and partitions at `/metrics`: traffic and sizes.

Names are those of Kafka's BrokerTopicMetrics and Log through the JMX exporter, of kafka_exporter, and of Redpanda.
Partitions beyond `PARTITIONS_MAX` are left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from kafkawire.http.exposition import PORTION, lines, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.api import ClusterImage
    from engine.stats import PartitionStatistics
    from kafkawire.requests.metrics import TopicCounters

PARTITIONS_MAX: Final = 20_000

_TOPIC: Final = 'topic="%s"'
_PARTITION: Final = 'partition="%d",topic="%s"'
_REDPANDA_TOPIC: Final = 'redpanda_topic="%s"'
_REDPANDA_REQUEST: Final = 'redpanda_request="%s",redpanda_topic="%s"'
_REDPANDA_PARTITION: Final = 'redpanda_partition="%d",redpanda_topic="%s"'
_BROKER_TOPIC: Final = "kafka_server_brokertopicmetrics_"
_OF_PARTITIONS: Final[tuple[tuple[str, str, str, Callable[[PartitionStatistics], int]], ...]] = (
    ("kafka_log_log_logendoffset", "Log end offset of a log.", _PARTITION, lambda one: one.log_end_offset),
    ("kafka_log_log_logstartoffset", "Log start offset of a log.", _PARTITION, lambda one: one.log_start_offset),
    ("kafka_log_log_numlogsegments", "Segments of a log.", _PARTITION, lambda one: one.segment_count),
    ("kafka_log_log_size", "Bytes of a log.", _PARTITION, lambda one: one.size_bytes),
    (
        "kafka_topic_partition_current_offset",
        "Log end offset of a partition.",
        _PARTITION,
        lambda one: one.high_watermark,
    ),
    (
        "kafka_topic_partition_oldest_offset",
        "Log start offset of a partition.",
        _PARTITION,
        lambda one: one.log_start_offset,
    ),
    (
        "kafka_cluster_partition_laststableoffsetlag",
        "Records behind the last stable offset.",
        _PARTITION,
        lambda one: one.high_watermark - one.last_stable_offset,
    ),
    (
        "redpanda_kafka_max_offset",
        "Log end offset of a partition.",
        _REDPANDA_PARTITION,
        lambda one: one.high_watermark,
    ),
)


class LogMetrics:
    """Metrics of the topics in the image, and of the partitions that are open here."""

    def __init__(
        self,
        by_topic: Mapping[str, TopicCounters],
        partitions: Callable[[], Iterator[PartitionStatistics]],
        image: Callable[[], ClusterImage],
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._by_topic = by_topic
        self._partitions = partitions
        self._image = image
        self._partitions_max = partitions_max

    def portions(self) -> Iterator[bytes]:
        """The text, in small pieces."""
        yield from self._of_topics()
        found: list[PartitionStatistics] = []
        left_out = 0
        for number, one in enumerate(self._partitions()):
            if number % PORTION == 0:
                yield b""
            if number < self._partitions_max:
                found.append(one)
            else:
                left_out += 1
        for name, documentation, labels, value in _OF_PARTITIONS:
            samples = [(one.partition, one.topic, value(one)) for one in found]
            yield from lines(name, documentation, "gauge", labels, samples)
        yield text_of(
            [
                GaugeMetricFamily(
                    "kafkawire_partitions_left_out",
                    "Partitions without a series of their own, as they are too many.",
                    left_out,
                )
            ]
        )

    def _of_topics(self) -> Iterator[bytes]:
        image = self._image()
        counted = [(topic, one) for topic, one in self._by_topic.items() if topic in image.topics]
        of_all = (
            ("messagesin", "Appended records.", [(topic, one.messages_in) for topic, one in counted]),
            ("bytesin", "Bytes of appended records.", [(topic, one.bytes_in) for topic, one in counted]),
            ("bytesout", "Bytes of records read.", [(topic, one.bytes_out) for topic, one in counted]),
            ("failedproducerequests", "Refused batches.", [(topic, one.failed_produces) for topic, one in counted]),
            ("failedfetchrequests", "Refused reads.", [(topic, one.failed_fetches) for topic, one in counted]),
        )
        for name, documentation, samples in of_all:
            yield from lines(f"{_BROKER_TOPIC}{name}_total", documentation, "counter", _TOPIC, samples)
        produced = [(topic, one.messages_in) for topic, one in counted]
        name = "redpanda_kafka_records_produced_total"
        yield from lines(name, "Appended records.", "counter", _REDPANDA_TOPIC, produced)
        moved = [
            sample
            for topic, one in counted
            for sample in (("produce", topic, one.bytes_in), ("consume", topic, one.bytes_out))
        ]
        name = "redpanda_kafka_request_bytes_total"
        yield from lines(name, "Bytes of appended and read records.", "counter", _REDPANDA_REQUEST, moved)
