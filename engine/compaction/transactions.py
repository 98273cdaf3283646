"""Transactions during a compaction pass: which batches were aborted, and which markers end nothing any more.

Pure; Kafka's CleanedTransactionMetadata. It gets the batches of consecutive segments in order. An abort marker goes
together with its entry in the aborted index: with the entry alone, a consumer would take all later records of the
producer for aborted.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from engine.api import AbortedTransaction, Marker, Outcome
from engine.batches.batch import BatchHeader


class PassedTransactions:
    """The transactions that one walk over a log has met."""

    __slots__ = ("_aborted", "_expected", "_known", "_with_data", "aborted_to")

    def __init__(self) -> None:
        self.aborted_to = 0  # behind the last marker that aborted a batch of the walk
        self._expected: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._known: set[int] = set()  # last offsets
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer: the open ones
        self._with_data: set[int] = set()  # producers of open transactions with at least one batch

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add the aborted transactions that touch the next segment; some may be known."""
        for one in aborted:
            if one.last_offset not in self._known:
                self._known.add(one.last_offset)
                heappush(self._expected, (one.first_offset, one))

    def has_aborted(self, header: BatchHeader) -> bool:
        """Whether the next batch was aborted."""
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
        """Note the next batch, a marker: (whether no batch of its transaction is left, its entry in the aborted
        index)."""
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
