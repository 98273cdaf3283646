"""Confirmed reads: reads of a leader wait until no successor can have been elected before they came (RULES K24)."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from engine.replica_log import SessionFetch
from engine.replication.confirmations import ConfirmedMoments
from engine.replication.replicas import Replicas
from engine.waiting_reads import AsOf, ConfirmationInputs

RECENT_MS: Final = 1500

OnConfirmed = Callable[[bool], None]


class _Waiting(NamedTuple):
    """A waiting read. `on_confirmed`: called once, with whether the leader still led when the read came."""

    asked: AsOf
    on_confirmed: OnConfirmed


class ConfirmedReads:
    """Confirmed reads of one leadership of a partition that has other replicas."""

    __slots__ = ("_began_ms", "_confirming", "_moments", "_replicas", "_waiting")

    def __init__(self, replicas: Replicas, confirming: ConfirmationInputs) -> None:
        self._replicas = replicas
        self._confirming = confirming
        self._began_ms = confirming.waiting.clock.boot_ms()
        self._moments = ConfirmedMoments()
        self._waiting: deque[_Waiting] = deque()  # in the order in which they came

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def successors(self) -> frozenset[int]:
        """The replicas that may be elected instead of this leader, see `Replicas.successors`."""
        return self._replicas.successors

    @property
    def needs_metadata(self) -> bool:
        """Whether the followers alone cannot confirm a read: there is no possible successor, or one of them is down."""
        successors = self.successors
        return not successors or not successors.issubset(self._replicas.serving)

    @property
    def is_current(self) -> bool:
        """Whether reads that may be stale are answered.

        A leader without a metadata session needs other replicas that have fetched within replica.lag.time.max.ms:
        enough for min.insync.replicas, and at least one if any can be elected.
        """
        if self._confirming.has_session():
            return True
        wanted = max(self._replicas.enough_others, 1 if self.successors else 0)
        since_ms = self._confirming.waiting.clock.boot_ms() - self._replicas.lag_max_ms
        return self._began_ms >= since_ms or self._fetching_since(since_ms) >= wanted

    @property
    def is_confirmed_of_late(self) -> bool:
        """Whether all possible successors have fetched in this epoch within RECENT_MS. A successor may have been
        elected since."""
        successors = self.successors
        if not successors:
            return self._confirming.has_session()
        return self._confirming.waiting.clock.boot_ms() - self._moments.by_all(successors).ms < RECENT_MS

    def _fetching_since(self, since_ms: int) -> int:
        return sum(self._moments.by(one).ms >= since_ms for one in self._replicas.others)

    def fetched(self, replica: int, as_of: AsOf, session_fetch: SessionFetch | None = None) -> None:
        """Note a Fetch of a replica, see `ConfirmedMoments.fetched`. `WaitingReads.check` answers the reads, once for a
        whole Fetch request."""
        self._moments.fetched(replica, as_of, session_fetch)

    def stopped_fetching(self, replica: int, session_fetch: SessionFetch | None = None) -> None:
        """Note that a replica no longer fetches, see `ConfirmedMoments.stopped_fetching`."""
        self._moments.stopped_fetching(replica, session_fetch)

    def wait(self, on_confirmed: OnConfirmed) -> None:
        """Call `on_confirmed(True)` when each possible successor has sent a Fetch that it made after this call, or when
        the metadata have shown this leadership after this call. `on_confirmed(False)`: the read expired, or the
        leadership ended."""
        asked = self._confirming.waiting.clock.next()
        self._waiting.append(_Waiting(asked, on_confirmed))
        self._moments.hurry(self.successors, asked)
        self._confirming.waiting.add(self)

    def check(self) -> None:
        """Answer the reads that all possible successors have confirmed."""
        self.confirm(self._moments.by_all(self.successors))

    def confirm(self, as_of: AsOf) -> None:
        """Confirm the reads that came before this moment."""
        while self._waiting and self._waiting[0].asked < as_of:
            self._waiting.popleft().on_confirmed(True)

    def expire(self, before_ms: int) -> None:
        """Refuse the reads that came at or before this time, in ms of the clock."""
        while self._waiting and self._waiting[0].asked.ms <= before_ms:
            self._waiting.popleft().on_confirmed(False)

    def end(self) -> None:
        """End the leadership, also for a suspension: refuse the waiting reads, and forget the Fetches of followers,
        which fetch from another leader from now on."""
        given_up, self._waiting, self._moments = self._waiting, deque[_Waiting](), ConfirmedMoments()
        self._confirming.waiting.remove(self)
        for one in given_up:
            one.on_confirmed(False)
