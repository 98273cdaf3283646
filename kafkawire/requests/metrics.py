"""Counters of requests by API, as plain ints that the hot path can afford; `/metrics` reads them.

This module knows no Prometheus type and no clock: the caller gives durations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.stats import Durations


@dataclass(slots=True)
class ApiCounters:
    """Counters of one API. `latency` is counted when a request is answered, or needs no answer."""

    name: str
    requests: int = 0
    failures: int = 0
    request_size_bytes: int = 0
    latency: Durations = field(default_factory=Durations)


@dataclass(slots=True)
class TopicCounters:
    """Counters of client traffic of an existing topic."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0


class TopicTable(dict[str, TopicCounters]):
    """A row for each existing topic, made at first use. The deletion of a topic removes its row."""

    def __missing__(self, topic: str) -> TopicCounters:
        found = self[topic] = TopicCounters()
        return found


@dataclass(slots=True)
class ReplicationCounters:
    """Counters of replication: fetched bytes in both directions, ISR changes, changes of followed logs.

    `round_trips`: by follower, from a response of this broker to the follower's next Fetch on the same connection.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    truncations: int = 0
    restarts: int = 0  # re-replications from scratch
    failures: int = 0  # replicas that were closed, because their log contradicts the leader's
    round_trips: dict[int, Durations] = field(default_factory=dict)

    def note_round_trip(self, follower: int, duration_s: float) -> None:
        """Note the time until a follower has fetched again."""
        known = self.round_trips.get(follower)
        if known is None:
            known = self.round_trips[follower] = Durations()
        known.note(duration_s)


@dataclass(slots=True)
class RequestMetrics:
    """All counters of one broker. `by_api` has a row per served API, so that clients cannot make it grow."""

    by_api: dict[int, ApiCounters] = field(default_factory=dict)
    by_topic: TopicTable = field(default_factory=TopicTable)
    replication: ReplicationCounters = field(default_factory=ReplicationCounters)
    protocol_violations: int = 0
    unserved_reads: int = 0  # of partitions whose records left the memory before they were sent
