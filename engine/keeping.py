"""Fills partitions from other logs: batches keep the offsets they have. What that means is in
docs/formats/append-at-offset.md.

In this order: everything is checked that needs no state, a log that was never used begins at the first offset, gaps
are expected durably, and then batches are queued as any others are. Whatever ends it, a part of them is there, in
order, and the same may be asked for again.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.api import NO_OFFSET, PendingAppend, TopicPartition
from engine.batches.batch import BatchHeader
from engine.batches.kept_checks import split
from engine.errors import EngineError, InvalidRecord, OffsetOutOfRange
from engine.log_dirs.truncation import is_unused
from engine.partitions.kept import Kept, check_reach, has_gaps
from engine.partitions.partition import Partition
from engine.store import SegmentStore


class LogEdges(NamedTuple):
    """Where a log begins and ends, as it is when batches are there."""

    log_start_offset: int
    log_end_offset: int


class KeptBatches:
    """Of a store."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    async def append(self, partition: TopicPartition, records: memoryview, end_offset: int | None = None) -> LogEdges:
        """Batches one behind the other, acked as with acks=all. What is wholly below the log end is there already;
        `end_offset`: where that is, if the caller knows, else OffsetOutOfRange.

        `records` must be writable, and are the engine's. Raises as `PartitionLog.append` does: of the first batch that
        was refused, when those before it are there; and OffsetOutOfRange where one does not continue the log.
        """
        log = self._store.get(partition)
        leader = log.leading()
        admitted = [leader.admit_kept(log, one) for one in split(records)]
        _check_ascend([one.header for one in admitted])
        if end_offset not in (None, log.log_end_offset):
            raise OffsetOutOfRange(f"the log end is {log.log_end_offset}, not {end_offset}")
        await self._make_way(log, admitted)
        pending: list[PendingAppend] = []
        refusal: EngineError | None = None
        for one in admitted:
            try:
                pending.append(log.queue(one))
            except EngineError as error:  # those that are queued are the engine's, and go on
                refusal = error
                break
        for append in pending:
            await append.wait()
        if refusal is not None:
            raise refusal
        return LogEdges(log.log_start_offset, log.log_end_offset)

    async def _make_way(self, log: Partition, admitted: Sequence[Kept]) -> None:
        """For what is not there yet: where an unused log begins, and up to where there are gaps."""
        first = admitted[0].header.base_offset
        if is_unused(log.log) and first > log.log_end_offset:
            await self._store.reset_partition(log.partition, first, expects_unused=True)
        end_offset = log.log_end_offset
        gaps_to = NO_OFFSET
        for one in admitted:
            header = one.header
            if header.next_offset <= end_offset:
                continue
            check_reach(header, end_offset)
            if header.base_offset > end_offset or has_gaps(header):
                gaps_to = header.next_offset
            one.follows, end_offset = end_offset, header.next_offset
        if gaps_to > log.log.compacted_to:
            await log.expect_gaps(gaps_to, log.log.epochs.since(log.log_end_offset).below(gaps_to))


def _check_ascend(headers: Sequence[BatchHeader]) -> None:
    """Else one could pass for being there already that is not. Raises InvalidRecord."""
    for one, following in pairwise(headers):
        if following.base_offset < one.next_offset:
            raise InvalidRecord(f"a batch from offset {following.base_offset} on behind one up to {one.next_offset}")
