"""Which segments of a log have an aborted index, and what is known of them without a look at their files.

Pure. That of the active segment is in memory. Of the others there is what was found lately for a range of offsets: all
transactions that touch it have ended by then, so that such an answer stays right. A log without aborted transactions
costs nothing.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.api import AbortedTransaction
from engine.errors import NotLoaded

ENTRIES_MAX = 16 * 1024  # of one segment: it is finished then
ANSWERS_MAX = 4


class _Answer(NamedTuple):
    """What touches the offsets from one on and below another, by their markers."""

    from_offset: int
    to_offset: int
    aborted: Sequence[AbortedTransaction]


class AbortedIndexes:
    """Of one log. `active`: of the segment that is appended to; `bases`: of finished segments that have one."""

    __slots__ = ("_answers", "active", "bases")

    def __init__(self) -> None:
        self.active: list[AbortedTransaction] = []
        self.bases: list[int] = []
        self._answers: deque[_Answer] = deque(maxlen=ANSWERS_MAX)

    def __bool__(self) -> bool:
        return bool(self.bases or self.active)

    @property
    def is_full(self) -> bool:
        """Whether the active segment has as many as one may have."""
        return len(self.active) >= ENTRIES_MAX

    def know(self, base_offsets: Iterable[int]) -> None:
        """These finished segments have one."""
        self.bases = sorted({*self.bases, *base_offsets})

    def finish(self, base_offset: int, below: int) -> None:
        """The active segment, of that base offset, ends at `below`, and another one begins there."""
        number = bisect_left(self.active, below, key=_last_offset)
        if number:
            self.bases.append(base_offset)
            del self.active[:number]

    def next_base(self, base_offset: int) -> int | None:
        """Of the first finished segment with one that begins there or later."""
        number = bisect_left(self.bases, base_offset)
        return self.bases[number] if number < len(self.bases) else None

    def overlapping(self, base_offset: int, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Those that touch the offsets from one on and below another, of which the first is in the segment that begins
        at `base_offset`, and all are stable; in the order of their markers. NotLoaded: files have to be looked at."""
        if self.next_base(base_offset) is None:
            return overlapping(self.active, from_offset, to_offset)[0]
        for one in self._answers:
            if one.from_offset <= from_offset and to_offset <= one.to_offset:
                return [each for each in one.aborted if touches(each, from_offset, to_offset)]
        raise NotLoaded

    def remember(self, from_offset: int, to_offset: int, aborted: Sequence[AbortedTransaction]) -> None:
        """It was found that these, and no others, touch that range, all of which is stable."""
        self._answers.appendleft(_Answer(from_offset, to_offset, aborted))

    def drop_below(self, base_offset: int) -> None:
        """The log has no segments below that one any more."""
        del self.bases[: bisect_left(self.bases, base_offset)]

    def replace(self, bases: Sequence[int], *, has_any: bool) -> None:
        """One segment takes the place of these; whether there is anything in its index."""
        left = {base for base in self.bases if base not in bases}
        self.bases = sorted({*left, bases[0]} if has_any else left)
        self._answers.clear()  # an entry goes with its marker

    def cut(self, base_offset: int, active: Sequence[AbortedTransaction]) -> None:
        """The log ends with that segment now."""
        del self.bases[bisect_left(self.bases, base_offset) :]
        self.active = list(active)
        self._answers.clear()


def touches(one: AbortedTransaction, from_offset: int, to_offset: int) -> bool:
    """Whether a transaction has anything from one offset on and below another."""
    return one.last_offset >= from_offset and one.first_offset < to_offset


def overlapping(
    aborted: Sequence[AbortedTransaction], from_offset: int, to_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Those of one index that touch a range, and whether nothing that ends behind them does."""
    number = bisect_left(aborted, from_offset, key=_last_offset)
    end = bisect_left(aborted, to_offset, key=_last_stable_offset)
    found = [one for one in aborted[number : end + 1] if one.first_offset < to_offset]
    return found, end < len(aborted)


def _last_offset(one: AbortedTransaction) -> int:
    return one.last_offset


def _last_stable_offset(one: AbortedTransaction) -> int:
    return one.last_stable_offset
