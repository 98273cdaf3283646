"""Counters of requests per API, as plain ints that the hot path can afford; `/metrics` reads them when asked.

It knows no Prometheus type and no clock: the caller says how long something took.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

# Upper bounds of the latency buckets; the last bucket has none.
BUCKETS_MS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10_000.0)


@dataclass(slots=True)
class ApiCounters:
    """What happened to the requests of one API. `in_bucket[i]` counts latencies up to BUCKETS_MS[i], not cumulated."""

    name: str
    requests: int = 0
    failures: int = 0
    request_size_bytes: int = 0
    latency_sum_ms: float = 0.0
    in_bucket: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1))

    def answered(self, latency_ms: float) -> None:
        """A request was answered, or needed no answer, after this time."""
        self.latency_sum_ms += latency_ms
        self.in_bucket[bisect_left(BUCKETS_MS, latency_ms)] += 1


@dataclass(slots=True)
class TopicCounters:
    """What clients wrote to and read from a topic that exists."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0


class TopicTable(dict[str, TopicCounters]):
    """A row for each topic when it is first asked for: of topics that exist. Who deletes one takes its row away."""

    def __missing__(self, topic: str) -> TopicCounters:
        found = self[topic] = TopicCounters()
        return found


@dataclass(slots=True)
class RequestMetrics:
    """All counters of one broker. `by_api` has a row per served API, so it cannot grow with what clients send."""

    by_api: dict[int, ApiCounters] = field(default_factory=dict)
    by_topic: TopicTable = field(default_factory=TopicTable)
    protocol_violations: int = 0
