"""The fetch session of another broker on one peer connection (KIP-227). It ends with the connection.

A connection has one session at a time, and no other connection can name it. So the session needs neither an id of its
own nor a place in a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from engine.replica_log import AsOf, SessionFetch
from kafkawire.fetching.sessions import LAST_EPOCH, FetchSession, FetchTarget, TargetWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

# The session id in a follower's request, and in the reply of a leader that keeps the session. Without a session the
# reply has another id.
LINK_SESSION_ID: Final = 1


class LinkSession:
    """The fetch session of one connection. `session_fetch`: when the partitions that are not named again were last
    asked for."""

    __slots__ = ("_session", "session_fetch")

    def __init__(self) -> None:
        self._session: FetchSession | None = None
        self.session_fetch = SessionFetch()

    def begin(self, targets: Iterable[FetchTarget], watch: TargetWatch) -> FetchSession:
        """Begin a session of these targets that owns `watch`."""
        self.close()
        self.session_fetch = SessionFetch()
        self._session = FetchSession(LINK_SESSION_ID, targets, watch, by_id=True, now_ms=0)
        return self._session

    def resume(self, epoch: int) -> FetchSession | None:
        """The session, if its epoch is this one and no request waits in it."""
        session = self._session
        if session is None or session.busy or session.epoch != epoch:
            return None
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session

    def close(self) -> None:
        """End the session; its logs are no longer watched."""
        if self._session is not None:
            self._session.close()


class PeerFetch(NamedTuple):
    """A Fetch on a peer connection: its time in milliseconds, the time of which it shows its broker's state, and the
    session."""

    at_ms: int
    as_of: AsOf
    session: LinkSession
