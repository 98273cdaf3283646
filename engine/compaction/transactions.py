"""What compaction has to know of transactions: which batches were taken back, which markers have nothing left to end.

Pure; Kafka's CleanedTransactionMetadata. It is told of the batches of consecutive segments in their order. A marker
that aborts goes together with its entry in the aborted index: without it a consumer that is told of the entry would
take all that comes from the producer later for aborted.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from engine.api import AbortedTransaction, Marker, Outcome
from engine.batches.batch import BatchHeader


class PassedTransactions:
    """Of one walk over a log."""

    __slots__ = ("_aborted", "_expected", "_known", "_with_data", "aborted_to")

    def __init__(self) -> None:
        self.aborted_to = 0  # behind the last marker for which a batch was taken back
        self._expected: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._known: set[int] = set()  # last offsets
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer: those within which the walk is
        self._with_data: set[int] = set()  # producers of transactions of which a batch was met

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Those that touch the segment that comes next, some of which may be known."""
        for one in aborted:
            if one.last_offset not in self._known:
                self._known.add(one.last_offset)
                heappush(self._expected, (one.first_offset, one))

    def has_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch, the next one, was taken back."""
        if not header.is_transactional:
            return False
        self._arrive(header.next_offset - 1)
        one = self._aborted.get(header.producer_id)
        self._with_data.add(header.producer_id)
        if one is None or header.base_offset >= one.last_offset:
            return False
        self.aborted_to = max(self.aborted_to, one.last_offset + 1)
        return True

    def end(self, header: BatchHeader, marker: Marker) -> tuple[bool, AbortedTransaction | None]:
        """Whether a marker, the next batch, ends nothing any more, and the entry that goes with it."""
        self._arrive(header.base_offset)
        ends_nothing = marker.producer_id not in self._with_data
        self._with_data.discard(marker.producer_id)
        if marker.outcome is not Outcome.ABORT:
            return ends_nothing, None
        one = self._aborted.pop(marker.producer_id, None)
        if one is not None:
            self._known.discard(one.last_offset)
        return ends_nothing, one

    def _arrive(self, offset: int) -> None:
        while self._expected and self._expected[0][0] <= offset:
            _, one = heappop(self._expected)
            self._aborted[one.producer_id] = one
