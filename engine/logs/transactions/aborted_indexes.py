"""The aborted indexes of a log: the entries of the active segment, and which finished segments have an index file.

Pure. The entries of the active segment are in memory. For finished segments, the results of the latest look-ups are
kept by range of offsets. Such a result stays right, because all transactions that touch the range have ended. A log
without aborted transactions costs nothing.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.api import AbortedTransaction
from engine.errors import NotLoaded

ENTRIES_MAX = 16 * 1024  # entries of one segment; with so many it is finished
ANSWERS_MAX = 4


class _LookUp(NamedTuple):
    """A look-up result: all aborted transactions that touch the offsets from `from_offset` to below `to_offset`."""

    from_offset: int
    to_offset: int
    aborted: Sequence[AbortedTransaction]


class AbortedIndexes:
    """The aborted indexes of one log.

    `active` has the entries of the active segment, `bases` the base offsets of the finished segments with an index.
    """

    __slots__ = ("_look_ups", "active", "bases")

    def __init__(self) -> None:
        self.active: list[AbortedTransaction] = []
        self.bases: list[int] = []
        self._look_ups: deque[_LookUp] = deque(maxlen=ANSWERS_MAX)

    def __bool__(self) -> bool:
        return bool(self.bases or self.active)

    @property
    def is_full(self) -> bool:
        """Whether the active segment has as many entries as a segment may have."""
        return len(self.active) >= ENTRIES_MAX

    def know(self, base_offsets: Iterable[int]) -> None:
        """Note finished segments that have an aborted index."""
        self.bases = sorted({*self.bases, *base_offsets})

    def finish(self, base_offset: int, below: int) -> None:
        """Finish the active segment, which begins at `base_offset`: it ends at `below`, where the next segment
        begins."""
        number = bisect_left(self.active, below, key=_last_offset)
        if number:
            self.bases.append(base_offset)
            del self.active[:number]

    def next_base(self, base_offset: int) -> int | None:
        """The base offset of the first finished segment, from `base_offset` on, that has an aborted index; None without
        one."""
        number = bisect_left(self.bases, base_offset)
        return self.bases[number] if number < len(self.bases) else None

    def overlapping(self, base_offset: int, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that touch the offsets from `from_offset` to below `to_offset`, ordered by their
        markers.

        The first offset is in the segment that begins at `base_offset`, and all of the range is stable. Raises
        NotLoaded if index files have to be read.
        """
        if self.next_base(base_offset) is None:
            return overlapping(self.active, from_offset, to_offset)[0]
        for one in self._look_ups:
            if one.from_offset <= from_offset and to_offset <= one.to_offset:
                return [each for each in one.aborted if touches(each, from_offset, to_offset)]
        raise NotLoaded

    def remember(self, from_offset: int, to_offset: int, aborted: Sequence[AbortedTransaction]) -> None:
        """Keep a look-up result: exactly these transactions touch the range, all of which is stable."""
        self._look_ups.appendleft(_LookUp(from_offset, to_offset, aborted))

    def drop_below(self, base_offset: int) -> None:
        """Forget the segments below `base_offset`, which the log has lost."""
        del self.bases[: bisect_left(self.bases, base_offset)]

    def replace(self, bases: Sequence[int], *, has_any: bool) -> None:
        """Put one segment in the place of the segments `bases`. `has_any`: its aborted index has entries."""
        left = {base for base in self.bases if base not in bases}
        self.bases = sorted({*left, bases[0]} if has_any else left)
        self._look_ups.clear()  # compaction drops an entry with its marker

    def truncate(self, base_offset: int, active: Sequence[AbortedTransaction]) -> None:
        """Truncate: the segment that begins at `base_offset` is the active one now, with these entries."""
        del self.bases[bisect_left(self.bases, base_offset) :]
        self.active = list(active)
        self._look_ups.clear()


def touches(one: AbortedTransaction, from_offset: int, to_offset: int) -> bool:
    """Whether a transaction has offsets from `from_offset` to below `to_offset`."""
    return one.last_offset >= from_offset and one.first_offset < to_offset


def overlapping(
    aborted: Sequence[AbortedTransaction], from_offset: int, to_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """The entries of one index that touch a range, and whether no later index has to be read.

    If the last stable offset of an entry is `to_offset` or higher, no later transaction began below `to_offset`.
    """
    number = bisect_left(aborted, from_offset, key=_last_offset)
    end = bisect_left(aborted, to_offset, key=_last_stable_offset)
    found = [one for one in aborted[number : end + 1] if one.first_offset < to_offset]
    return found, end < len(aborted)


def _last_offset(one: AbortedTransaction) -> int:
    return one.last_offset


def _last_stable_offset(one: AbortedTransaction) -> int:
    return one.last_stable_offset
