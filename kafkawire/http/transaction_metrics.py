"""Transactions at `/metrics`, and their problems for `/health/cluster`.

Kafka's names where it has them, through the JMX exporter. A transaction *hangs* if it is open in a partition for longer
than the maximum timeout, while its producer is silent: its coordinator does not know it any more, or could not end it
there. It delays every reader of committed records (KIP-664).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coordinator.transactions.api import NO_TIME_MS, TransactionState
from kafkawire.http.exposition import PORTION, text_of

if TYPE_CHECKING:
    from coordinator.transactions.api import TransactionStatistics
    from engine.stats import PartitionStatistics

LATE_BUFFER_MS: Final = 300_000  # ProducerStateManager.LATE_TRANSACTION_BUFFER_MS
_STATES: Final = tuple(state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionMetrics:
    """Metrics of the transactional ids that this broker coordinates, and of the partitions that are open here.

    `timeout_max_ms`: transaction.max.timeout.ms.
    """

    statistics: TransactionStatistics
    partitions: Callable[[], Iterator[PartitionStatistics]]
    now_ms: Callable[[], int]
    timeout_max_ms: int

    def portions(self) -> Iterator[bytes]:
        """The text, in small pieces; some are empty."""
        states: Counter[TransactionState] = Counter()
        oldest_ms = now_ms = self.now_ms()
        for number, one in enumerate(self.statistics.figures()):
            if number % PORTION == 0:
                yield b""
            states[one.state] += 1
            if one.open_since_ms != NO_TIME_MS:
                oldest_ms = min(oldest_ms, one.open_since_ms)
        late = 0
        for number, partition in enumerate(self.partitions()):
            if number % PORTION == 0:
                yield b""
            late += self._is_late(partition, now_ms)
        yield text_of(self._families(states, (now_ms - oldest_ms) / 1000, late))

    def _families(self, states: Counter[TransactionState], oldest_s: float, late: int) -> Iterator[Metric]:
        counters = self.statistics.counters
        by_state = GaugeMetricFamily("kafkawire_transactional_ids", "Transactional ids, by state.", labels=["state"])
        for state in _STATES:
            by_state.add_metric([state.label], states[state])
        yield by_state
        for name, documentation, value in (
            ("transactions_begun", "Started transactions.", counters.started),
            ("transactions_committed", "Committed transactions with all markers written.", counters.committed),
            ("transactions_aborted", "Aborted transactions with all markers written.", counters.aborted),
            ("transactions_timed_out", "Transactions aborted after their timeout.", counters.timed_out),
            ("transactional_ids_expired", "Expired transactional ids.", counters.expired_ids),
            ("transaction_markers_refused", "Transactions whose marker a partition refused.", counters.stuck_markers),
        ):
            yield CounterMetricFamily(f"kafkawire_{name}", documentation, value)
        yield GaugeMetricFamily(
            "kafkawire_transaction_oldest_seconds", "Age of the oldest ongoing transaction.", oldest_s
        )
        yield GaugeMetricFamily(
            "kafka_server_replicamanager_partitionswithlatetransactionscount",
            "Partitions with a transaction open for longer than transaction.max.timeout.ms.",
            late,
        )

    def ailments(self) -> Iterable[str]:
        """Problems that an operator should check, as texts."""
        now_ms = self.now_ms()
        for one in self.partitions():
            if self._is_late(one, now_ms):
                minutes = (now_ms - one.oldest_transaction_ms) // 60_000
                yield f"{one.topic}-{one.partition} has a transaction that hangs, silent for {minutes:,} minutes"

    def _is_late(self, one: PartitionStatistics, now_ms: int) -> bool:
        return 0 <= one.oldest_transaction_ms < now_ms - self.timeout_max_ms - LATE_BUFFER_MS
