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
class RequestMetrics:
    """All counters of one broker. `by_api` has a row per served API, so it cannot grow with what clients send."""

    by_api: dict[int, ApiCounters] = field(default_factory=dict)
    protocol_violations: int = 0
