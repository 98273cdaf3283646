"""Reads of a leader that wait until no successor can have been elected before they came (RULES K24)."""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from engine.replica_log import Standing
from engine.replication.confirmations import Shown
from engine.replication.replicas import Replicas
from engine.waiting_reads import AsOf, Confirming

RECENT_MS: Final = 1500

Told = Callable[[bool], None]


class _Waiting(NamedTuple):
    """`told`: called once, with whether the leader still led when the read came."""

    asked: AsOf
    told: Told


class ConfirmedReads:
    """Of one leadership of a partition that has other replicas."""

    __slots__ = ("_began_ms", "_confirming", "_replicas", "_shown", "_waiting")

    def __init__(self, replicas: Replicas, confirming: Confirming) -> None:
        self._replicas = replicas
        self._confirming = confirming
        self._began_ms = confirming.waiting.clock.boot_ms()
        self._shown = Shown()
        self._waiting: deque[_Waiting] = deque()  # in the order in which they came

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def successors(self) -> frozenset[int]:
        """See `Replicas.successors`."""
        return self._replicas.successors

    @property
    def needs_metadata(self) -> bool:
        """Whether followers alone cannot confirm a read: none may succeed, or one of them is down."""
        successors = self.successors
        return not successors or not successors.issubset(self._replicas.serving)

    @property
    def is_current(self) -> bool:
        """Whether a read may be answered that may be stale. A leader without a metadata session needs as many replicas
        as min.insync.replicas says that have fetched within replica.lag.time.max.ms; one other, if any may lead."""
        if self._confirming.has_session():
            return True
        wanted = max(self._replicas.enough_others, 1 if self.successors else 0)
        since_ms = self._confirming.waiting.clock.boot_ms() - self._replicas.lag_max_ms
        return self._began_ms >= since_ms or self._fetching_since(since_ms) >= wanted

    @property
    def is_confirmed_of_late(self) -> bool:
        """Whether all possible successors have fetched in this epoch a moment ago. A successor may have been elected
        since."""
        successors = self.successors
        if not successors:
            return self._confirming.has_session()
        return self._confirming.waiting.clock.boot_ms() - self._shown.by_all(successors).ms < RECENT_MS

    def _fetching_since(self, since_ms: int) -> int:
        return sum(self._shown.by(one).ms >= since_ms for one in self._replicas.others)

    def fetched(self, replica: int, as_of: AsOf, standing: Standing | None = None) -> None:
        """See `Shown.fetched`. The reads are told by `WaitingReads.check`, once for a whole Fetch."""
        self._shown.fetched(replica, as_of, standing)

    def left(self, replica: int, standing: Standing | None = None) -> None:
        """See `Shown.left`."""
        self._shown.left(replica, standing)

    def wait(self, told: Told) -> None:
        """Call `told` when each possible successor has sent a Fetch that was made after now, or when the metadata has
        shown this leadership after now; with False when that comes to nothing."""
        asked = self._confirming.waiting.clock.next()
        self._waiting.append(_Waiting(asked, told))
        self._shown.hurry(self.successors, asked)
        self._confirming.waiting.add(self)

    def check(self) -> None:
        """Tell the reads that all possible successors have confirmed."""
        self.confirm(self._shown.by_all(self.successors))

    def confirm(self, as_of: AsOf) -> None:
        """Tell the reads that came before this moment that the leader led then."""
        while self._waiting and self._waiting[0].asked < as_of:
            self._waiting.popleft().told(True)

    def expire(self, before_ms: int) -> None:
        """Give up the reads that came before."""
        while self._waiting and self._waiting[0].asked.ms <= before_ms:
            self._waiting.popleft().told(False)

    def end(self) -> None:
        """The leadership is over, or suspended: what followers have shown counts no longer, as they ask elsewhere."""
        given_up, self._waiting, self._shown = self._waiting, deque[_Waiting](), Shown()
        self._confirming.waiting.remove(self)
        for one in given_up:
            one.told(False)
