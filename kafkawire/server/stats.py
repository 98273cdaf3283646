"""The server's counters as plain numbers. Only the server writes them; `kafkawire.http` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkawire.wire.connection import CloseReason


@dataclass(slots=True)
class ServerStats:
    """Counters since the start; the open, paused and muted connections and the sizes are of now.

    Paused: `queued.max.request.bytes` is reached, and the connection is not read. Muted: too many bytes of all
    connections are unanswered, and the connection is not read until its Produce is answered.
    """

    connections_open: int = 0
    connections_accepted: int = 0
    connections_refused_total: int = 0  # max.connections was reached
    connections_refused_per_ip: int = 0  # max.connections.per.ip was reached
    connections_paused: int = 0
    connections_muted: int = 0
    pauses: int = 0
    accept_failures: int = 0
    handshakes: int = 0  # of TLS, that have succeeded
    requests: int = 0
    replies: int = 0
    received_size_bytes: int = 0
    sent_size_bytes: int = 0
    in_flight_size_bytes: int = 0
    unanswered_size_bytes: int = 0
    closed: dict[CloseReason, int] = field(default_factory=lambda: dict.fromkeys(CloseReason, 0))
