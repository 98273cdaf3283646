"""The server's counters, as plain numbers: whoever exposes them (`kafkawire.http`) reads, only the server writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkawire.wire.connection import CloseReason


@dataclass(slots=True)
class ServerStats:
    """Counters since the start, except `connections_open` and `in_flight_size_bytes`, which are of now."""

    connections_open: int = 0
    connections_accepted: int = 0
    connections_refused_total: int = 0  # max.connections was reached
    connections_refused_per_ip: int = 0  # max.connections.per.ip was reached
    accept_failures: int = 0
    requests: int = 0
    replies: int = 0
    received_size_bytes: int = 0
    sent_size_bytes: int = 0
    in_flight_size_bytes: int = 0
    closed: dict[CloseReason, int] = field(default_factory=lambda: dict.fromkeys(CloseReason, 0))
