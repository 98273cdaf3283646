"""Whether a leader may still be one, as far as its followers show it. Pure.

A broker that was stopped for a while, and does not know it, may answer from what is no longer so. It is told apart by
its followers (RULES K24): whoever may succeed it fetched from it in its epoch, so did not know of a later one, as of a
moment that is not long ago; and a successor that waits that long before it answers has no predecessor who still does.
Clocks are compared with themselves only, and go on while a machine sleeps (CLOCK_BOOTTIME).
"""

from collections.abc import Collection

from engine.replica_log import NEVER_MS, Standing

LEASE_MS = 1500


class Confirmation:
    """What one follower's link shows, for all partitions of which it fetches in their epochs.

    A Fetch may have lain in the socket of a leader that was stopped, for any time. But it was made after the response
    before it was received: so it tells what was so when that one was sent.
    """

    __slots__ = ("_responded_at_ms", "as_of_ms")

    def __init__(self) -> None:
        self._responded_at_ms = NEVER_MS
        self.as_of_ms = NEVER_MS

    def responded(self, now_ms: int) -> None:
        """A response is about to be sent."""
        self._responded_at_ms = now_ms

    def fetched(self) -> None:
        """The Fetch that follows it has come."""
        self.as_of_ms = self._responded_at_ms


class Lease:
    """Of one partition, in one epoch of its leader, on its own clock. `waits`: somebody led it before, and has not told
    that he answers no more."""

    __slots__ = ("_as_of_ms", "_began_at_ms", "_standing", "_waits")

    def __init__(self, now_ms: int, *, waits: bool = True) -> None:
        self._began_at_ms = now_ms
        self._waits = waits
        self._as_of_ms: dict[int, int] = {}  # by replica
        self._standing: dict[int, Standing] = {}

    def fetched(self, replica: int, as_of_ms: int, standing: Standing | None = None) -> None:
        """A Fetch of this partition in this epoch shows what was so then; see `Confirmation`. What its link shows later
        on says nothing of a partition that it fetches no more, and as much of one that it fetches as before."""
        self._as_of_ms[replica] = as_of_ms
        if standing is not None:
            self._standing[replica] = standing

    def left(self, replica: int) -> None:
        """What it asks from now on says nothing of this partition."""
        self._as_of_ms[replica] = self._shown_by(replica)
        self._standing.pop(replica, None)

    def wait_ms(self, now_ms: int) -> int:
        """For how long the leader before may still answer."""
        return max(0, self._began_at_ms + LEASE_MS - now_ms) if self._waits else 0

    def is_confirmed(self, successors: Collection[int], now_ms: int, *, has_session: bool) -> bool:
        """To be asked when an answer is made. `successors`: all others that may be in the ISR or the ELR. If there are
        none, the metadata store's session tells: `has_session`."""
        return not self.wait_ms(now_ms) and self._is_shown(successors, now_ms, has_session)

    def may_take(self, successors: Collection[int], now_ms: int, *, has_session: bool) -> bool:
        """Whether a record may count that only this leader has. What the one before takes does not matter, and who
        has just begun has it from the metadata that he leads."""
        has_just_begun = now_ms - self._began_at_ms < LEASE_MS
        return has_just_begun or self._is_shown(successors, now_ms, has_session)

    def _is_shown(self, successors: Collection[int], now_ms: int, has_session: bool) -> bool:
        if not successors:
            return has_session
        return now_ms - min(map(self._shown_by, successors)) < LEASE_MS

    def _shown_by(self, replica: int) -> int:
        as_of_ms, standing = self._as_of_ms.get(replica, NEVER_MS), self._standing.get(replica)
        return as_of_ms if standing is None else max(as_of_ms, standing.as_of_ms)
