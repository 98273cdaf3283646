"""Confirmation of a leadership by the Fetches of its followers. Pure.

A leader that was paused for a while may have a successor, and does not know it. A possible successor fetches from the
leader, in its leader epoch, until that broker learns of a later epoch. So a Fetch in this epoch that was made after a
request came proves that its sender knew no later epoch when the request came (RULES K24).
"""

from collections.abc import Collection

from engine.replica_log import SessionFetch
from engine.waiting_reads import NEVER, AsOf


class Confirmation:
    """Confirmation by the peer connection of one follower, for all partitions that it fetches in their leader epochs.

    A Fetch may have waited in the socket of a paused leader for any time. But a follower makes a Fetch after it has
    received the response before it, so after that response was sent.
    """

    __slots__ = ("_responded", "as_of")

    def __init__(self) -> None:
        self._responded = NEVER
        self.as_of = NEVER

    def responded(self, now: AsOf) -> None:
        """Note that a response is about to be sent."""
        self._responded = now

    def fetched(self) -> None:
        """Note the arrival of the Fetch that follows the last response."""
        self.as_of = self._responded


class ConfirmedMoments:
    """The last moment at which each follower is known to have had no later leader epoch, for one partition in one
    leader epoch."""

    __slots__ = ("_as_of", "_session_fetches")

    def __init__(self) -> None:
        self._as_of: dict[int, AsOf] = {}  # by replica
        self._session_fetches: dict[int, SessionFetch] = {}

    def fetched(self, replica: int, as_of: AsOf, session_fetch: SessionFetch | None = None) -> None:
        """Note a Fetch of this partition in this epoch; `as_of`: see `Confirmation`. Each later Fetch of the session of
        `session_fetch` counts for this partition, too, until `stopped_fetching` or another session."""
        self._as_of[replica] = as_of
        if session_fetch is not None:
            self._session_fetches[replica] = session_fetch

    def stopped_fetching(self, replica: int, session_fetch: SessionFetch | None = None) -> None:
        """Note that later Fetches of the replica no longer count for this partition. `session_fetch`: only those of
        that session."""
        if session_fetch is None or self._session_fetches.get(replica) is session_fetch:
            self._as_of[replica] = self.by(replica)
            self._session_fetches.pop(replica, None)

    def by(self, replica: int) -> AsOf:
        """The newest confirmed moment of the replica."""
        as_of, session_fetch = self._as_of.get(replica, NEVER), self._session_fetches.get(replica)
        return as_of if session_fetch is None else max(as_of, session_fetch.as_of)

    def by_all(self, replicas: Collection[int]) -> AsOf:
        """The newest moment that all of them have confirmed; `NEVER` if there are none."""
        return min(map(self.by, replicas), default=NEVER)

    def hurry(self, replicas: Collection[int], asked: AsOf) -> None:
        """Let waiting Fetches of these replicas be answered at once, unless they were made after this moment."""
        for replica in replicas:
            session_fetch = self._session_fetches.get(replica)
            if session_fetch is not None:
                session_fetch.hurried_to = max(session_fetch.hurried_to, asked.order)
