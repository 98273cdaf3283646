"""What is known of a connection besides its bytes.

A module of its own, as it is not compiled: weak references are held to these, which a compiled class does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkawire.wire.connection import ProtocolViolation


@dataclass(slots=True, eq=False, weakref_slot=True)
class ConnectionInfo:
    """What handlers may know about a connection. One object per connection: its identity can own things.

    A handler that parks a long poll first looks at `is_ending`, then sets `answer_early`: it is called when the broker
    shuts down or the peer has left, or asks on though its polls give way, and the poll should be answered with what
    there is. One slot is enough, because a parked single-stage request keeps every other from starting.
    """

    listener_name: str
    peer_host: str
    local_address: str  # the IP address by which the peer has reached us: what to advertise when none is configured
    client_software_name: str = "unknown"  # Kafka's value until ApiVersions v3 tells (KIP-511)
    client_software_version: str = "unknown"
    is_ending: bool = False
    answer_early: Callable[[], None] | None = None
    gives_way: bool = False
    principal: str | None = None  # who is at the other end, once that is proved
    is_peer: bool = False  # another broker is, and has proved it
    ends_because: str | None = None  # from then on nothing is executed, and the next reply is the last one

    def hurry(self) -> None:
        """A parked long poll is asked to answer with what there is; any other request is left alone."""
        if self.answer_early is not None:
            self.answer_early()

    def end_long_poll(self) -> None:
        """As `hurry`, and none is parked again."""
        self.is_ending = True
        self.hurry()

    @property
    def violation(self) -> ProtocolViolation | None:
        """What ends it, if it is to end."""
        return None if self.ends_because is None else ProtocolViolation(self.ends_because)
