"""How far a replica's log is written, durable, known to be on all replicas in sync, and stable. Pure.

As positions, so that whoever reads up to one of them knows where in which file that is (Kafka's LogOffsetMetadata). A
leader learns from the others how far they are; its high watermark is where the last of those in sync is durable
(Partition.maybeIncrementLeaderHW), and never goes back but with the log. That `flush.policy` says what durable means
(RULES L1) is the caller's business.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from engine.logs.position import LogPosition
from engine.replication.unstable import Unstable


class Progress:
    """Of one replica. With no others in sync the high watermark is the durable end.

    `has_others`: there are other replicas, in sync or not, so that the high watermark may come to lie between any two
    batches. `ends` are those of the batches above `high_watermark`, where that is not the end of the log. `unstable`:
    where the transactions begin, by offset, that are open or among those that `ended` above `high_watermark`, of which
    it tells the first and the last offsets.
    """

    __slots__ = (
        "_ends",
        "_ends_of_others",
        "_in_sync",
        "_is_held",
        "_unstable",
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
        unstable: Mapping[int, LogPosition] = MappingProxyType({}),
        ended: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.has_others = has_others
        self.written = self.durable = end
        self.high_watermark = self.last_stable = end if high_watermark is None else high_watermark
        self._ends = deque(ends)
        self._ends_of_others: dict[int, int] = {}  # by replica, as they said in this epoch
        self._in_sync: Collection[int] = ()  # of the others
        self._is_held = False
        self._unstable = Unstable(unstable)
        self.note_transactions((), ended)
        self._note_stable()

    @property
    def undecided_from(self) -> int:
        """Where the first transaction begins that is open, or ended above the high watermark; the end without one."""
        first = self._unstable.first(self.high_watermark.offset)
        return self.written.offset if first is None else first.offset

    # What the log does

    def note_written(self, end: LogPosition, batch_ends: Iterable[LogPosition] = ()) -> None:
        """`batch_ends`, of which `end` is the last, matter if there are other replicas."""
        self.written = end
        if self.has_others:
            self._ends.extend(batch_ends)

    def note_transactions(self, begun: Iterable[LogPosition], ended: Iterable[tuple[int, int]]) -> None:
        """Of what was written just now: where transactions begin, ascending, and first and last offsets of those that
        end. Nothing from where one begins on is stable until the high watermark has passed its end."""
        for position in begun:
            self._unstable.begin(position)
        for first_offset, last_offset in ended:
            self._unstable.end(first_offset, last_offset)

    def note_durable(self, end: LogPosition) -> bool:
        """Whether the high watermark moved."""
        assert self.durable.offset <= end.offset <= self.written.offset, "durable is what was written, and stays"
        self.durable = end
        return self._advance()

    def cut(self, end: LogPosition, unstable: Mapping[int, LogPosition] = MappingProxyType({})) -> None:
        """The log ends there now; all of it is durable. `unstable`: where transactions begin that are open then."""
        self.written = self.durable = end
        self.high_watermark = min(self.high_watermark, end)
        while self._ends and self._ends[-1].offset > end.offset:
            self._ends.pop()
        self._unstable.cut(end.offset, unstable)
        self._note_stable()

    def reset(self, position: LogPosition) -> None:
        """The log begins and ends there now: nothing of it can be missing anywhere."""
        self.written = self.durable = self.high_watermark = self.last_stable = position
        self._ends.clear()
        self._unstable = Unstable({})

    # What others do

    def lead(self, in_sync: Collection[int], *, is_enough: bool = True) -> bool:
        """A new epoch begins: what the others said before does not count. Whether the high watermark moved."""
        self._ends_of_others.clear()
        return self.set_in_sync(in_sync, is_enough=is_enough)

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

    def reach(self, offset: int) -> bool:
        """All below it counts, even if it lies within a batch. Whether that is more than was known."""
        return self._move(self._position_at(offset)._replace(offset=offset))

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
        high_watermark = self.high_watermark
        first = self._unstable.first(high_watermark.offset) if self._unstable else None
        self.last_stable = high_watermark if first is None else min(first, high_watermark)

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
