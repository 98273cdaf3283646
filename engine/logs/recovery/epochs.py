"""The leader epochs of a log: which epoch began at which offset (KIP-101; Kafka's LeaderEpochFileCache).

Pure. A start rebuilds it from batch headers: an epoch without batches is known only while the process lives. Batches
that compaction has left may not show where an epoch began, or that it existed. There a log uses what it knew before,
and a follower uses what its leader says (`expect`).
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from engine.api import NO_EPOCH, NO_OFFSET, EpochEnd

UNDEFINED = EpochEnd(NO_EPOCH, NO_OFFSET)
_epoch_of = attrgetter("epoch")
_start_offset_of = attrgetter("start_offset")


class EpochStart(NamedTuple):
    """`epoch` holds from `start_offset` on."""

    epoch: int
    start_offset: int


class EpochHistory:
    """Epochs in rising order with the offsets they began at."""

    __slots__ = ("_expected", "_starts")

    def __init__(self, starts: Iterable[EpochStart] = (), expected: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self._expected = tuple(expected)

    def expect(self, starts: Iterable[EpochStart]) -> None:
        """Note where epochs begin in batches that are about to be appended, which have gaps. Nothing else tells of
        them."""
        self._expected = tuple(starts)

    def expects(self, starts: Iterable[EpochStart]) -> bool:
        return self._expected == tuple(starts)

    def follow(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """Note that a batch of `epoch` begins at `base_offset`, behind a log that ends at `end_offset`.

        In a gap between both, the expected epochs count: nothing else tells of an epoch whose first batches are gone.
        """
        if end_offset < base_offset:
            for one in self._expected:
                if end_offset <= one.start_offset <= base_offset and one.epoch <= epoch:
                    self.note(*one)
        self.note(epoch, base_offset)

    def note(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`, by an append or a new leader. Only the first note of an epoch
        counts."""
        if self._starts and epoch <= self._starts[-1].epoch:
            return
        if self._starts and start_offset == self._starts[-1].start_offset:
            self._starts.pop()  # nothing was appended in that epoch
        self._starts.append(EpochStart(epoch, start_offset))

    def drop_from(self, offset: int) -> None:
        """Forget epochs that began at or above `offset`, where the log now ends: an older epoch may append there
        (KAFKA-10706)."""
        self._expected = ()
        while self._starts and self._starts[-1].start_offset >= offset:
            self._starts.pop()

    @property
    def latest(self) -> int:
        return self._starts[-1].epoch if self._starts else NO_EPOCH

    def epoch_of(self, offset: int) -> int:
        """The epoch in which `offset` was, or would be, appended; -1 if it lies before all known epochs."""
        index = bisect_right(self._starts, offset, key=_start_offset_of) - 1
        return self._starts[index].epoch if index >= 0 else NO_EPOCH

    def since(self, start_offset: int) -> "EpochHistory":
        """The history of a log that begins at `start_offset`, without epochs that ended before."""
        kept = [start for start in self._starts if start.start_offset > start_offset]
        holding = self.epoch_of(start_offset)
        if holding != NO_EPOCH:
            kept.insert(0, EpochStart(holding, start_offset))
        return EpochHistory(kept, self._expected)

    def end_of(self, epoch: int, log_end_offset: int, log_start_offset: int = 0) -> EpochEnd:
        """Where the records of `epoch` end, as LeaderEpochFileCache.endOffsetFor; UNDEFINED if it is not known.

        The answer is that of `since(log_start_offset)`, without building it: each Fetch may ask.
        """
        if epoch == NO_EPOCH:
            return UNDEFINED
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        starts = self._starts
        first = max(0, bisect_right(starts, log_start_offset, key=_start_offset_of) - 1)
        higher = bisect_right(starts, epoch, first, key=_epoch_of)
        if higher == len(starts):
            return UNDEFINED
        known = starts[higher - 1].epoch if higher > first else epoch
        return EpochEnd(known, max(starts[higher].start_offset, log_start_offset))

    def below(self, offset: int) -> tuple[EpochStart, ...]:
        """The epochs that began below `offset`."""
        return tuple(start for start in self._starts if start.start_offset < offset)
