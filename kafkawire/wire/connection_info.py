"""Facts about a connection besides its bytes.

This module is not compiled: weak references to these objects are held, which compiled classes do not support.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkawire.wire.connection import ProtocolViolation


@dataclass(slots=True, eq=False, weakref_slot=True)
class ConnectionInfo:
    """A connection, as handlers see it. There is one object per connection, so it can be the key of owned objects.

    A handler that parks a long poll first checks `is_ending`, then sets `answer_early`. That callback is called when
    the poll should be answered with what is there: the broker shuts down, the peer has left, or the peer asks on and
    its polls give way. One slot is enough, because a parked single-stage request keeps every other one from starting.
    """

    listener_name: str
    peer_host: str
    local_address: str  # IP address by which the peer has connected: advertised if none is configured
    client_software_name: str = "unknown"  # Kafka's value until ApiVersions v3 tells (KIP-511)
    client_software_version: str = "unknown"
    is_ending: bool = False
    answer_early: Callable[[], None] | None = None
    gives_way: bool = False
    principal: str | None = None  # of the peer, once it is authenticated
    is_peer: bool = False  # the peer is an authenticated broker
    ends_because: str | None = None  # if set, nothing more is executed, and the next reply is the last one

    def hurry(self) -> None:
        """Have a parked long poll answer with what is there; other requests are not affected."""
        if self.answer_early is not None:
            self.answer_early()

    def end_long_poll(self) -> None:
        """Same as `hurry`, and no long poll is parked again."""
        self.is_ending = True
        self.hurry()

    @property
    def violation(self) -> ProtocolViolation | None:
        """The error that ends the connection, if it has to end."""
        return None if self.ends_because is None else ProtocolViolation(self.ends_because)
