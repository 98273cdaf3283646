"""Progress of a replica: written end, durable end, high watermark and last stable offset. Pure.

All are positions, so that a reader knows the file and the byte (Kafka's LogOffsetMetadata). A leader learns the ends of
the other replicas. Its high watermark is the least durable end in the ISR (Partition.maybeIncrementLeaderHW), and goes
back only if the log is truncated. The caller decides what is durable, by `flush.policy` (RULES L1).
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from engine.logs.segments.position import LogPosition
from engine.replication.unstable import Unstable


class Progress:
    """Progress of one replica. Without others in sync the high watermark is the durable end.

    `has_others`: there are other replicas, in sync or not, so that the high watermark may lie between any two batches.
    `ends`: the ends of the batches above `high_watermark`, if that is below the log end. `ended`: (first, last) offsets
    of transactions that ended above `high_watermark`. `unstable`: first positions of these and of the open
    transactions, by offset.
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
        self._ends_of_others: dict[int, int] = {}  # by replica, as fetched in this epoch
        self._in_sync: Collection[int] = ()  # the others that the high watermark waits for
        self._is_held = False
        self._unstable = Unstable(unstable)
        self.note_transactions((), ended)
        self._note_stable()

    @property
    def undecided_from(self) -> int:
        """The first offset of the first transaction that is open, or ended above the high watermark; else the log
        end."""
        first = self._unstable.first(self.high_watermark.offset)
        return self.written.offset if first is None else first.offset

    # Changes of this log

    def note_written(self, end: LogPosition, batch_ends: Iterable[LogPosition] = ()) -> None:
        """Note the written end. `batch_ends`: ends of the new batches, the last is `end`; needed with other
        replicas."""
        self.written = end
        if self.has_others:
            self._ends.extend(batch_ends)

    def note_transactions(self, started: Iterable[LogPosition], ended: Iterable[tuple[int, int]]) -> None:
        """Note the transactions of the newly written batches. `started`: first positions, in ascending order; `ended`:
        (first, last) offsets. No record from a begin on is stable until the high watermark has passed the end."""
        for position in started:
            self._unstable.begin(position)
        for first_offset, last_offset in ended:
            self._unstable.end(first_offset, last_offset)

    def note_durable(self, end: LogPosition) -> bool:
        """Note the durable end; returns whether the high watermark moved."""
        assert self.durable.offset <= end.offset <= self.written.offset, (
            "the durable end moves forward, up to the written end"
        )
        self.durable = end
        return self._advance()

    def truncate(self, end: LogPosition, unstable: Mapping[int, LogPosition] = MappingProxyType({})) -> None:
        """Note that the log was truncated to `end`, and is durable. `unstable`: first positions of transactions that
        are open now."""
        self.written = self.durable = end
        self.high_watermark = min(self.high_watermark, end)
        while self._ends and self._ends[-1].offset > end.offset:
            self._ends.pop()
        self._unstable.truncate(end.offset, unstable)
        self._note_stable()

    def reset(self, position: LogPosition) -> None:
        """Note that the log was reset, and begins and ends at `position`."""
        self.written = self.durable = self.high_watermark = self.last_stable = position
        self._ends.clear()
        self._unstable = Unstable({})

    # Changes of other replicas

    def lead(self, in_sync: Collection[int], *, is_enough: bool = True) -> bool:
        """Begin to lead in a new epoch, and forget the ends of the others; returns whether the high watermark moved."""
        self._ends_of_others.clear()
        return self.set_in_sync(in_sync, is_enough=is_enough)

    def set_in_sync(self, in_sync: Collection[int], *, is_enough: bool = True) -> bool:
        """Set the other replicas that the high watermark waits for. Without `is_enough` it stands still.

        Returns whether the high watermark moved.
        """
        self._in_sync = frozenset(in_sync)
        self._is_held = not is_enough
        return self._advance()

    def note_replica(self, replica: int, end_offset: int) -> bool:
        """Note the durable end of another replica, in sync or not; returns whether the high watermark moved."""
        self._ends_of_others[replica] = end_offset
        return replica in self._in_sync and self._advance()

    def end_of(self, replica: int) -> int:
        """The end of another replica, as fetched in this epoch; -1: not known."""
        return self._ends_of_others.get(replica, -1)

    def begin_to_follow(self) -> None:
        """Begin to follow: from now on the leader tells the high watermark."""
        self.has_others = True
        self.set_in_sync((), is_enough=False)

    def follow(self, leader_high_watermark: int) -> bool:
        """Take over the leader's high watermark, up to this replica's durable end (UnifiedLog.updateHighWatermark);
        returns whether it moved."""
        return self._move(self._position_at(min(leader_high_watermark, self.durable.offset)))

    def reach(self, offset: int) -> bool:
        """Move the high watermark to `offset`, even within a batch; returns whether it moved."""
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
        """The last known position at or below `offset`."""
        if offset >= self.durable.offset:
            return self.durable
        found = self.high_watermark
        for end in self._ends:
            if end.offset > offset:
                break
            found = end
        return found
