"""How far a replica's log is written, durable, known to be on all replicas in sync, and stable. Pure.

As positions, so that whoever reads up to one of them knows where in which file that is (Kafka's LogOffsetMetadata). A
leader learns from the others how far they are; its high watermark is where the last of those in sync is durable
(Partition.maybeIncrementLeaderHW), and never goes back but with the log. That `flush.policy` says what durable means
(RULES L1) is the caller's business.
"""

from collections import deque
from collections.abc import Collection, Iterable

from engine.logs.position import LogPosition


class Progress:
    """Of one replica. With no others in sync the high watermark is the durable end.

    `has_others`: there are other replicas, in sync or not, so that the high watermark may come to lie between any two
    batches. `ends` are those of the batches above `high_watermark`, where that is not the end of the log.
    """

    __slots__ = (
        "_ends",
        "_ends_of_others",
        "_in_sync",
        "_is_held",
        "_unstable_from",
        "durable",
        "has_others",
        "high_watermark",
        "last_stable",
        "written",
    )

    def __init__(
        self,
        end: LogPosition,
        high_watermark: LogPosition | None = None,
        ends: Iterable[LogPosition] = (),
        *,
        has_others: bool = False,
    ) -> None:
        self.has_others = has_others
        self.written = self.durable = end
        self.high_watermark = self.last_stable = end if high_watermark is None else high_watermark
        self._ends = deque(ends)
        self._ends_of_others: dict[int, int] = {}  # by replica, as they said in this epoch
        self._in_sync: Collection[int] = ()  # of the others
        self._is_held = False
        self._unstable_from: LogPosition | None = None

    # What the log does

    def note_written(self, end: LogPosition, batch_ends: Iterable[LogPosition] = ()) -> None:
        """`batch_ends`, of which `end` is the last, matter if there are other replicas."""
        self.written = end
        if self.has_others:
            self._ends.extend(batch_ends)

    def note_durable(self, end: LogPosition) -> bool:
        """Whether the high watermark moved."""
        assert self.durable.offset <= end.offset <= self.written.offset, "durable is what was written, and stays"
        self.durable = end
        return self._advance()

    def cut(self, end: LogPosition) -> None:
        """The log ends there now; all of it is durable."""
        self.written = self.durable = end
        self.high_watermark = min(self.high_watermark, end)
        self.last_stable = min(self.last_stable, end)
        while self._ends and self._ends[-1].offset > end.offset:
            self._ends.pop()
        if self._unstable_from is not None and self._unstable_from.offset >= end.offset:
            self._unstable_from = None

    def reset(self, position: LogPosition) -> None:
        """The log begins and ends there now: nothing of it can be missing anywhere."""
        self.written = self.durable = self.high_watermark = self.last_stable = position
        self._ends.clear()
        self._unstable_from = None

    def hold_stable(self, first_unstable: LogPosition | None) -> None:
        """The first batch of a transaction that is not over, if there is one: nothing from there on is stable."""
        self._unstable_from = first_unstable
        self._note_stable()

    # What others do

    def lead(self, in_sync: Collection[int]) -> bool:
        """A new epoch begins: what the others said before does not count. Whether the high watermark moved."""
        self._ends_of_others.clear()
        return self.set_in_sync(in_sync)

    def set_in_sync(self, in_sync: Collection[int], *, is_enough: bool = True) -> bool:
        """Who has to have a record before it counts; while they are too few, nothing more does.

        Whether the high watermark moved.
        """
        self._in_sync = frozenset(in_sync)
        self._is_held = not is_enough
        return self._advance()

    def note_replica(self, replica: int, end_offset: int) -> bool:
        """Another replica has all below that offset, durably; in sync or not. Whether the high watermark moved."""
        self._ends_of_others[replica] = end_offset
        return replica in self._in_sync and self._advance()

    def end_of(self, replica: int) -> int:
        """As it said in this epoch; -1: it has not."""
        return self._ends_of_others.get(replica, -1)

    def begin_to_follow(self) -> None:
        """What is durable here counts when the leader says so."""
        self.has_others = True
        self.set_in_sync((), is_enough=False)

    def follow(self, leader_high_watermark: int) -> bool:
        """What the leader says, as far as this replica has it (UnifiedLog.updateHighWatermark). Whether it moved."""
        return self._move(self._position_at(min(leader_high_watermark, self.durable.offset)))

    # The high watermark

    def _advance(self) -> bool:
        if self._is_held:
            return False
        if not self._in_sync:
            return self._move(self.durable)
        known = self._ends_of_others
        return self._move(self._position_at(min(self.durable.offset, *(known.get(one, -1) for one in self._in_sync))))

    def _move(self, position: LogPosition) -> bool:
        if position.offset <= self.high_watermark.offset:
            return False
        self.high_watermark = position
        while self._ends and self._ends[0].offset <= position.offset:
            self._ends.popleft()
        self._note_stable()
        return True

    def _note_stable(self) -> None:
        unstable_from = self._unstable_from
        self.last_stable = self.high_watermark if unstable_from is None else min(unstable_from, self.high_watermark)

    def _position_at(self, offset: int) -> LogPosition:
        """The last known place at or below `offset`."""
        if offset >= self.durable.offset:
            return self.durable
        found = self.high_watermark
        for end in self._ends:
            if end.offset > offset:
                break
            found = end
        return found
