"""Append at offset: fills a partition from another log, and the batches keep their offsets
(docs/formats/append-at-offset.md).

The order of the steps: do all checks that need no state; reset an unused log to the first offset; note durably up to
where gaps are expected; queue the batches as any others. After a failure at any step, the first batches may be there,
in order, and the same request may be repeated.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.api import NO_OFFSET, PendingAppend, TopicIdPartition
from engine.batches.append_at_offset_checks import split
from engine.batches.batch import BatchHeader
from engine.errors import EngineError, InvalidRecord, OffsetOutOfRange
from engine.log_dirs.truncation import is_unused
from engine.partitions.append_at_offset import AppendAtOffset, check_reach, has_gaps
from engine.partitions.partition import Partition
from engine.store import SegmentStore


class LogEdges(NamedTuple):
    """Log start and log end after an append at offset."""

    log_start_offset: int
    log_end_offset: int


class KeptBatches:
    """Append at offset for the partitions of a store."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    async def append(self, partition: TopicIdPartition, records: memoryview, end_offset: int | None = None) -> LogEdges:
        """Append consecutive batches with their offsets, acknowledged as with acks=all.

        A batch wholly below the log end counts as already appended. `end_offset`: the log end that the caller expects;
        OffsetOutOfRange if it is another one. `records` must be writable, and belong to the engine until this returns.

        Raises as `PartitionLog.append` does, for the first batch that is refused, after the batches before it are
        appended; and OffsetOutOfRange for a batch that does not continue the log.
        """
        log = self._store.get(partition)
        admitted = [log.admit_kept(one) for one in split(records)]
        _check_ascend([one.header for one in admitted])
        if end_offset not in (None, log.log_end_offset):
            raise OffsetOutOfRange(f"the log end is {log.log_end_offset}, not {end_offset}")
        await self._make_way(log, admitted)
        pending: list[PendingAppend] = []
        refusal: EngineError | None = None
        for one in admitted:
            try:
                pending.append(log.queue(one))
            except EngineError as error:  # queued batches belong to the engine, and are still appended
                refusal = error
                break
        for append in pending:
            await append.wait()
        if refusal is not None:
            raise refusal
        return LogEdges(log.log_start_offset, log.log_end_offset)

    async def _make_way(self, log: Partition, admitted: Sequence[AppendAtOffset]) -> None:
        """Prepare the log for the batches that it lacks: reset an unused log, and note durably the expected gaps."""
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
    """Raise InvalidRecord unless the offsets ascend: otherwise a missing batch could count as already appended."""
    for one, following in pairwise(headers):
        if following.base_offset < one.next_offset:
            raise InvalidRecord(f"a batch from offset {following.base_offset} on behind one up to {one.next_offset}")
