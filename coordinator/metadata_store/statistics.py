"""Counters of a store's session, for `/metrics` and `/health/cluster`. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SessionState(Enum):
    """States of a session, by ZooKeeper's names, as far as they can be told apart here."""

    NOT_CONNECTED = "NOT_CONNECTED"  # no session was begun yet
    CONNECTED = "CONNECTED"
    CONNECTING = "CONNECTING"  # the connection was lost, the session may last
    CLOSED = "CLOSED"  # the session is over


@dataclass(slots=True)
class SessionStatistics:
    """Counters of all sessions of one store, since its start. `silent_s`: the seconds since a server was last heard."""

    silent_s: Callable[[], float]
    state: SessionState = SessionState.NOT_CONNECTED
    sync_connects: int = 0
    disconnects: int = 0
    expires: int = 0

    def note(self, state: SessionState) -> None:
        """Record a new state, and count it as Kafka's SessionExpireListener does. A session that is CLOSED has expired:
        the end of a session by this process is not recorded."""
        self.state = state
        self.sync_connects += state is SessionState.CONNECTED
        self.disconnects += state is SessionState.CONNECTING
        self.expires += state is SessionState.CLOSED
