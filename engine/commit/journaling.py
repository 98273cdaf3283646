"""Choice between the journal and the segment files for the parts of a sync. Pure."""

from collections.abc import Sequence
from itertools import pairwise

from engine.batches.batch import BatchHeader
from engine.commit.appends import PartitionShare
from engine.commit.journal_format import JournalEntry
from engine.logs.log import Log
from engine.logs.segments.chunk import Chunk

JOURNAL_MAX_BYTES = 4 * 1024 * 1024
JOURNAL_MAX_BYTES_PER_FILE = 64 * 1024  # above it, the sync of a file is cheaper than a second write of its bytes


def journalable(parts: Sequence[PartitionShare]) -> list[list[PartitionShare]]:
    """The parts that may go to the journal, grouped by log.

    Excluded are logs with unsynced bytes of `flush.policy=async` before the part, which a replay would miss, and logs
    for which a part begins a segment.
    """
    found: dict[Log, list[PartitionShare]] = {}
    others: set[Log] = set()
    for part in parts:
        log = part.log
        of_log = found.get(log)
        if part.rolls or part.before_offset > (log.covered_offset if of_log is None else of_log[-1].end.offset):
            others.add(log)
        if of_log is None:
            found[log] = [part]
        else:
            of_log.append(part)
    return [of_log for log, of_log in found.items() if log not in others] if others else list(found.values())


def worth_the_journal(logs: Sequence[list[PartitionShare]]) -> Sequence[list[PartitionShare]]:
    """Choose the logs for which the journal is cheaper: it writes bytes twice, but needs one sync.

    These are as many logs as possible, the smallest first, with at most JOURNAL_MAX_BYTES_PER_FILE on average.
    """
    size_bytes = sum([part.size_bytes for of_log in logs for part in of_log])
    if size_bytes <= min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * len(logs)):
        return logs
    sizes_bytes = [sum(part.size_bytes for part in of_log) for of_log in logs]
    chosen: list[list[PartitionShare]] = []
    total_bytes = 0
    for size_bytes, number in sorted(zip(sizes_bytes, range(len(logs)), strict=True)):
        total_bytes += size_bytes
        if total_bytes > min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * (len(chosen) + 1)):
            break
        chosen.append(logs[number])
    return chosen


def journal_entries(part: PartitionShare) -> list[JournalEntry]:
    """The journal entries of a part: several if its batches have several leader epochs, or gaps between them."""
    [chunk] = part.chunks
    headers, position = chunk.headers, chunk.position
    first = headers[0]
    if first.leader_epoch == headers[-1].leader_epoch and first.base_offset >= part.log.compacted_to:
        return [_entry(part, chunk, headers, position, chunk.size_bytes, chunk.batches)]
    entries = []
    for start, end in _runs(headers):
        batches = chunk.batches[start:end]
        size_bytes = sum(map(len, batches))
        entries.append(_entry(part, chunk, headers[start:end], position, size_bytes, batches))
        position += size_bytes
    return entries


def _entry(
    part: PartitionShare,
    chunk: Chunk,
    headers: Sequence[BatchHeader],
    position: int,
    size_bytes: int,
    batches: Sequence[memoryview],
) -> JournalEntry:
    partition, first = part.owner.partition, headers[0]
    return JournalEntry(
        partition.topic_id,
        partition.partition,
        first.leader_epoch,
        first.base_offset,
        headers[-1].next_offset,
        chunk.base_offset,
        position,
        size_bytes,
        batches,
    )


def _runs(headers: Sequence[BatchHeader]) -> list[tuple[int, int]]:
    """Runs of consecutive batches of one leader epoch, as (index of the first, index behind the last)."""
    breaks = [
        number
        for number, (one, following) in enumerate(pairwise(headers), start=1)
        if (one.leader_epoch, one.next_offset) != (following.leader_epoch, following.base_offset)
    ]
    return list(pairwise([0, *breaks, len(headers)]))
