"""Whether a leader may still be one, as far as its followers show it. Pure.

A broker that was stopped for a while, and does not know it, may answer from what is no longer so. It is told apart by
its followers (RULES K24): whoever may succeed it fetched from it in its epoch, so did not know of a later one, as of a
moment that is not long ago; and a successor that waits that long before it answers has no predecessor who still does.
Clocks are compared with themselves only, and go on while a machine sleeps (CLOCK_BOOTTIME).
"""

from collections.abc import Iterable

LEASE_MS = 1500
NEVER_MS = -(2**62)


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
    """Of one partition, in one epoch of its leader."""

    __slots__ = ("_began_at_ms",)

    def __init__(self, now_ms: int) -> None:
        self._began_at_ms = now_ms

    def is_confirmed(self, successors: Iterable[Confirmation | None], now_ms: int, *, has_session: bool) -> bool:
        """To be asked as an answer leaves. `successors`: of all others that may be in the ISR or the ELR; None: it has
        not fetched in this epoch. If there are none, the metadata store's session tells: `has_session`."""
        if now_ms - self._began_at_ms < LEASE_MS:
            return False  # the leader before may still answer
        as_of = [NEVER_MS if one is None else one.as_of_ms for one in successors]
        return now_ms - min(as_of) < LEASE_MS if as_of else has_session
