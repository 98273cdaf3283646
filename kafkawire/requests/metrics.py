"""Counters of requests per API, as plain ints that the hot path can afford; `/metrics` reads them when asked.

It knows no Prometheus type and no clock: the caller says how long something took.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.stats import Durations


@dataclass(slots=True)
class ApiCounters:
    """What happened to the requests of one API, and when they were answered, or needed no answer."""

    name: str
    requests: int = 0
    failures: int = 0
    request_size_bytes: int = 0
    latency: Durations = field(default_factory=Durations)


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
class ReplicationCounters:
    """What followers fetched, here and from here, how often an ISR became smaller or greater, and what befell the logs
    that are followed here.

    `round_trips`: by follower, from a response of this broker to the follower's next Fetch on the same connection.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    truncations: int = 0
    restarts: int = 0  # a log that was discarded, and copied from the leader again
    failures: int = 0  # replicas that were closed, as their log and the leader's cannot both be right
    round_trips: dict[int, Durations] = field(default_factory=dict)

    def note_round_trip(self, follower: int, duration_s: float) -> None:
        """A follower has fetched again."""
        known = self.round_trips.get(follower)
        if known is None:
            known = self.round_trips[follower] = Durations()
        known.note(duration_s)


@dataclass(slots=True)
class RequestMetrics:
    """All counters of one broker. `by_api` has a row per served API, so it cannot grow with what clients send."""

    by_api: dict[int, ApiCounters] = field(default_factory=dict)
    by_topic: TopicTable = field(default_factory=TopicTable)
    replication: ReplicationCounters = field(default_factory=ReplicationCounters)
    protocol_violations: int = 0
