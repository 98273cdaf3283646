"""The controller's work at `/metrics`: elections by their reason, and fenced brokers.

Names are those of Kafka's ControllerStats and KafkaController through the JMX exporter. A broker counts while it is the
controller: the sum over all brokers is the cluster's. KRaft's controller has no LeaderElectionRateAndTimeMs, so the
counter of all elections has a name of kafkawire, and the reason as a label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from coordinator.metadata.transitions import Election
from kafkawire.http.exposition import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from coordinator.api import ClusterImage
    from coordinator.cluster_events import ClusterCounters


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """Controller metrics of one broker. `image` returns its image of the cluster."""

    counters: ClusterCounters
    image: Callable[[], ClusterImage]

    def portions(self) -> Iterator[bytes]:
        """The text, in one piece."""
        yield text_of([*self._families()])

    def _families(self) -> Iterator[Metric]:
        counters, image = self.counters, self.image()
        elections = CounterMetricFamily("kafkawire_leader_elections", "Leaders elected, by reason.", labels=["reason"])
        for reason in Election:
            elections.add_metric([reason.value], counters.elections[reason])
        yield elections
        unclean = sum(counters.elections[reason] for reason in Election if reason.may_lose)
        stats = "kafka_controller_controllerstats_"
        for name, documentation, value in (
            (f"{stats}uncleanleaderelections", "Elections that may have lost acknowledged records.", unclean),
            (
                f"{stats}electionfromeligibleleaderreplicas",
                "Leaders elected from the ELR.",
                counters.elections_from_elr,
            ),
            ("kafkawire_brokers_fenced", "Brokers fenced.", counters.brokers_fenced),
            (
                "kafkawire_short_replicas",
                "Replicas found shorter than another replica in an election after all of them restarted.",
                counters.short_replicas,
            ),
        ):
            yield CounterMetricFamily(name, documentation, value)
        yield GaugeMetricFamily(
            "kafkawire_elections_waiting",
            "Partitions whose election waits for replicas that have all restarted.",
            counters.elections_waiting,
        )
        yield GaugeMetricFamily(
            "kafka_controller_kafkacontroller_fencedbrokercount",
            "Registered brokers that are fenced, or are not ready yet.",
            len(image.members) - len(image.brokers),
        )
