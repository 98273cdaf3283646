"""What followers show of the leadership of a broker that they fetch from. Pure.

A leader that was stopped for a while may have been succeeded, and does not know it. A broker that may succeed it
fetches from it, in its leader epoch, until that broker learns of a later epoch. So a Fetch of the epoch that was made
after a request came proves that its sender knew of no later epoch when the request came (RULES K24).
"""

from collections.abc import Collection

from engine.replica_log import Standing
from engine.waiting_reads import NEVER, AsOf


class Confirmation:
    """What the link of one follower shows, for all partitions that are fetched over it in their epochs.

    A Fetch may have lain in the socket of a leader that was stopped, for any time. But a follower makes it after the
    response before it was received, so after that response was sent.
    """

    __slots__ = ("_responded", "as_of")

    def __init__(self) -> None:
        self._responded = NEVER
        self.as_of = NEVER

    def responded(self, now: AsOf) -> None:
        """A response is about to be sent."""
        self._responded = now

    def fetched(self) -> None:
        """The Fetch that follows it has come."""
        self.as_of = self._responded


class Shown:
    """As of when each follower showed that it knew of no later epoch; of one partition, in one epoch of its leader."""

    __slots__ = ("_as_of", "_standing")

    def __init__(self) -> None:
        self._as_of: dict[int, AsOf] = {}  # by replica
        self._standing: dict[int, Standing] = {}

    def fetched(self, replica: int, as_of: AsOf, standing: Standing | None = None) -> None:
        """A Fetch of this partition in this epoch has come; see `Confirmation`. While `standing` is the replica's, each
        Fetch of its session counts for this partition."""
        self._as_of[replica] = as_of
        if standing is not None:
            self._standing[replica] = standing

    def left(self, replica: int, standing: Standing | None = None) -> None:
        """What the replica asks from now on shows nothing of this partition; in the session of `standing`, if told."""
        if standing is None or self._standing.get(replica) is standing:
            self._as_of[replica] = self.by(replica)
            self._standing.pop(replica, None)

    def by(self, replica: int) -> AsOf:
        """The newest moment that the replica has shown."""
        as_of, standing = self._as_of.get(replica, NEVER), self._standing.get(replica)
        return as_of if standing is None else max(as_of, standing.as_of)

    def by_all(self, replicas: Collection[int]) -> AsOf:
        """The newest moment that each of them has shown; `NEVER` if there are none."""
        return min(map(self.by, replicas), default=NEVER)

    def hurry(self, replicas: Collection[int], asked: AsOf) -> None:
        """Have a Fetch of theirs that waits for records answered, unless it was made after this moment."""
        for replica in replicas:
            standing = self._standing.get(replica)
            if standing is not None:
                standing.hurried_to = max(standing.hurried_to, asked.order)
