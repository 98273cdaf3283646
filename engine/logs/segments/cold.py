"""Cold segments: segments below the local start, without a file in the log dir, which the remote tier has.

Either all of them are known, without gaps, or none. If the index was lost, only the tier knows them. Until the tier has
answered, they must not count as missing, and no answer may leave them out.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from engine.errors import TierUnreachable
from engine.logs.segments.segment import Segment
from engine.logs.segments.sparse_index import Summary


class ColdSegments:
    """The cold segments of a log, oldest first; they end at `local_start_offset`. Empty: none exist, or none are
    known."""

    __slots__ = ("_bases", "local_start_offset", "segments")

    def __init__(self, local_start_offset: int = 0) -> None:
        self.local_start_offset = local_start_offset
        self.segments: list[Segment] = []
        self._bases: list[int] = []

    def of(self, offset: int) -> Segment:
        """The cold segment that holds `offset`, which lies below the local start. Raises TierUnreachable if it is not
        known."""
        number = bisect_right(self._bases, offset) - 1
        if number < 0:
            raise TierUnreachable(f"the remote segment of offset {offset} is not known (yet)")
        return self.segments[number]

    def all_from(self, start_offset: int) -> Sequence[Segment]:
        """All cold segments of a log that starts at `start_offset`. Raises TierUnreachable if they are not known."""
        if start_offset < self.local_start_offset:
            self.of(start_offset)
        return self.segments

    def know(
        self,
        summaries: Mapping[int, Summary],
        start_offset: int,
        epoch_of: Callable[[int], int],
        *,
        are_stored: bool = False,
    ) -> bool:
        """Learn the cold segments from summaries by base offset. False: they do not fit to this log, and are ignored.

        They have to cover all from `start_offset` to the local start, with the right leader epochs.
        """
        bases = sorted(base for base in summaries if base < self.local_start_offset)
        found = [
            _cold(base, summaries[base], is_stored=are_stored)
            for base in bases
            if summaries[base].end_offset > start_offset
        ]
        if not found or found[0].base_offset > start_offset or found[-1].end_offset != self.local_start_offset:
            return False
        if any(one.end_offset != following.base_offset for one, following in pairwise(found)):
            return False
        if any(summaries[one.base_offset].leader_epoch != epoch_of(one.end_offset - 1) for one in found):
            return False
        self.segments, self._bases = found, [one.base_offset for one in found]
        return True

    def take(self, removed: Sequence[tuple[Segment, Summary]], start_offset: int) -> None:
        """Turn the first local segments into cold ones. They are known only if the cold segments before them are."""
        was_known = self.segments or start_offset >= self.local_start_offset
        self.local_start_offset = removed[-1][0].end_offset
        if was_known:
            self.segments += [
                _cold(one.base_offset, summary, is_stored=one.summarised_size_bytes == one.size_bytes)
                for one, summary in removed
            ]
            self._bases += [one.base_offset for one, _ in removed]

    def has(self, segment: Segment) -> bool:
        number = bisect_right(self._bases, segment.base_offset) - 1
        return number >= 0 and self.segments[number] is segment

    def drop_below(self, offset: int) -> list[Segment]:
        """Remove and return the cold segments that end at or below `offset`."""
        count = sum(one.end_offset <= offset for one in self.segments)
        removed = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        return removed

    def drop_all(self) -> None:
        """Forget all: the log was deleted."""
        self.segments.clear()
        self._bases.clear()


def _cold(base_offset: int, summary: Summary, *, is_stored: bool) -> Segment:
    segment = Segment(base_offset)
    segment.believe(summary)
    if not is_stored:
        segment.summarised_size_bytes = 0
    segment.is_cold = segment.is_sealed = True
    return segment
