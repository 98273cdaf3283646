"""The metadata store at `/metrics` and `/health/cluster`: its availability, latency and failures.

Names of the session are those of Kafka's SessionExpireListener through the JMX exporter. A store that does not answer
makes no broker unready: all brokers would leave a load balancer at once, while they still serve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from coordinator.metadata_store.statistics import SessionState
from kafkawire.http.exposition import add_durations, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from coordinator.metadata.failures import MetadataFailures
    from coordinator.metadata_store.statistics import SessionStatistics
    from engine.stats import Durations

SILENT_S: Final = 20.0  # longer than the change from a silent server to another one takes, with the defaults
LISTENER: Final = "kafka_server_sessionexpirelistener_"


class WatchedStore(Protocol):
    """A metadata store that measures the latency of its answers."""

    latency: Durations

    @property
    def session(self) -> SessionStatistics | None:
        """Statistics of the session; None if the store is in this process."""
        ...

    @property
    def age_s(self) -> float:
        """Seconds since its last answer."""
        ...


@dataclass(frozen=True, slots=True)
class MetadataMetrics:
    """Metrics of the metadata store. `publication_lag`: changes that the broker has read and not applied yet."""

    store: WatchedStore
    failures: MetadataFailures
    publication_lag: Callable[[], int]

    def ailments(self) -> Iterator[str]:
        """Problems that an operator should check."""
        if (age_s := self.store.age_s) > SILENT_S:
            yield f"the metadata store has not answered for {age_s:.0f} s"
        yield from self.failures.standing

    def portions(self) -> Iterator[bytes]:
        """The text, in one piece."""
        yield text_of([*self._of_store(), *self._of_session()])

    def _of_store(self) -> Iterator[Metric]:
        text = "Seconds since the metadata store last answered."
        yield GaugeMetricFamily("kafkawire_metadata_age_seconds", text, self.store.age_s)
        text = "Metadata changes that were read and are not applied yet."
        yield GaugeMetricFamily("kafkawire_metadata_publication_lag", text, self.publication_lag())
        text = "Metadata that was unreadable, missing or rolled back, by kind."
        errors = CounterMetricFamily("kafkawire_metadata_errors", text, labels=["reason"])
        for reason, count in self.failures.counts.items():
            errors.add_metric([reason], count)
        yield errors
        text = "Time from a request to the metadata store to its response; Kafka's ZooKeeperRequestLatencyMs."
        latency = HistogramMetricFamily("kafkawire_metadata_request_latency_seconds", text, labels=[])
        add_durations(latency, [], self.store.latency)
        yield latency

    def _of_session(self) -> Iterator[Metric]:
        session = self.store.session
        if session is None:
            return
        state = GaugeMetricFamily(f"{LISTENER}sessionstate", "1 for the session's state.", labels=["state"])
        for one in SessionState:
            state.add_metric([one.value], int(one is session.state))
        yield state
        text = "Seconds since the last packet of a ZooKeeper server."
        yield GaugeMetricFamily("kafkawire_zookeeper_silent_seconds", text, session.silent_s())
        for name, documentation, value in (
            ("zookeepersyncconnects", "Connections to ZooKeeper.", session.sync_connects),
            ("zookeeperdisconnects", "Connections to ZooKeeper that were lost.", session.disconnects),
            ("zookeeperexpires", "ZooKeeper sessions that expired.", session.expires),
        ):
            yield CounterMetricFamily(LISTENER + name, documentation, value)
