"""Producers that keep a cluster saturated: each always has more to send than the brokers take."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict, deque
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from compat_tests.clients.confluent.clients import producer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message, Producer

    from compat_tests.harness.broker import Broker

VALUE = b"v" * 16 * 1024
QUEUE_KIB = 4 * 1024  # of each producer: records to be sent and in flight
CLIENTS_PER_THREAD = 10
# The load would fill a disk within minutes.
RETENTION_BROKER_CONFIG: Final = {"log.initial.task.delay.ms": "5000", "log.retention.check.interval.ms": "5000"}
RETENTION_TOPIC_CONFIG: Final = {
    "file.delete.delay.ms": "1000",
    "retention.bytes": str(128 << 20),
    "segment.bytes": str(32 << 20),
}
LATENCIES_MAX = 200_000  # newest latencies that are stored of each partition


class Latency(NamedTuple):
    """Latency of records in seconds, from `produce` to the acknowledgement."""

    mean: float
    p99: float

    @classmethod
    def of(cls, latencies: Iterable[float]) -> Self:
        found = sorted(latencies)
        return cls(statistics.fmean(found), found[int(len(found) * 0.99)])


class SaturatingProducers:
    """So many producers with acks=all, to all partitions of a topic, until the end of the block."""

    def __init__(self, broker: Broker, topic: str, count: int) -> None:
        self._topic = topic
        settings = {
            "acks": "all",
            "queue_buffering_max_kbytes": QUEUE_KIB,
            "reconnect_backoff_max_ms": 500,
        }
        self._clients = [producer(broker, **settings) for _ in range(count)]
        self._is_left = threading.Event()
        shares = [self._clients[at : at + CLIENTS_PER_THREAD] for at in range(0, count, CLIENTS_PER_THREAD)]
        self._threads = [threading.Thread(target=self._produce, args=(share,)) for share in shares]
        self.acknowledged = 0
        self._latencies_s: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=LATENCIES_MAX))
        self.errors: list[str] = []

    def _produce(self, clients: list[Producer]) -> None:
        while not self._is_left.is_set():
            for client in clients:
                self._fill(client)
                client.poll(0)
            time.sleep(0.002)

    def _fill(self, client: Producer) -> None:
        try:
            for _ in range(64):
                client.produce(self._topic, VALUE, on_delivery=self._delivered)
        except BufferError:
            pass

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
            self._latencies_s[message.partition() or 0].append(message.latency() or 0.0)
        elif not self._is_left.is_set():  # afterwards, the queue is purged
            self.errors.append(str(error))

    def rate(self, seconds: float) -> float:
        """Acknowledged records a second from now on: the median of three windows within these seconds."""
        rates = []
        for _ in range(3):
            before, begun_s = self.acknowledged, time.monotonic()
            time.sleep(seconds / 3)
            rates.append((self.acknowledged - before) / (time.monotonic() - begun_s))
        return statistics.median(rates)

    def forget_latencies(self) -> None:
        """Drop the latencies so far."""
        self._latencies_s.clear()

    def latencies_s(self) -> dict[int, Latency]:
        """The latencies by partition. The mean is the bytes in flight for the partition divided by its throughput
        (Little's law)."""
        return {partition: Latency.of(found) for partition, found in [*self._latencies_s.items()] if found}

    def latency_s(self) -> Latency:
        """The latency over all partitions."""
        return Latency.of(chain.from_iterable([*self._latencies_s.values()]))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_left.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.purge()
            client.flush(10)
        self._clients.clear()  # nothing of them is left that looks for brokers
