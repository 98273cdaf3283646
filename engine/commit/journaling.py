"""What of a sync goes to the journal, and what to the files of its logs. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from engine.batches.batch import BatchHeader
from engine.commit.appends import PartitionRound
from engine.commit.journal_format import JournalEntry
from engine.logs.log import Log

JOURNAL_MAX_BYTES = 4 * 1024 * 1024
JOURNAL_MAX_BYTES_PER_FILE = 64 * 1024  # above it, syncing the file costs less than writing its bytes twice


def journalable(parts: Sequence[PartitionRound]) -> list[list[PartitionRound]]:
    """Those of logs that may be journaled: not if what an async round left unsynced comes before, which a replay would
    miss, nor if a part begins a segment."""
    found: dict[Log, list[PartitionRound]] = {}
    others = set[Log]()
    for part in parts:
        before = found[part.log][-1].end.offset if part.log in found else part.log.covered_offset
        if part.rolls or part.before_offset > before:
            others.add(part.log)
        found.setdefault(part.log, []).append(part)
    return [of_log for log, of_log in found.items() if log not in others]


def worth_the_journal(logs: Sequence[list[PartitionRound]]) -> Sequence[list[PartitionRound]]:
    """Bytes are written twice there, but synced at once: as many logs, the smallest first, as are small on average."""
    sizes_bytes = [sum(part.size_bytes for part in of_log) for of_log in logs]
    if sum(sizes_bytes) <= min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * len(logs)):
        return logs
    chosen, total_bytes = list[list[PartitionRound]](), 0
    for size_bytes, number in sorted(zip(sizes_bytes, range(len(logs)), strict=True)):
        total_bytes += size_bytes
        if total_bytes > min(JOURNAL_MAX_BYTES, JOURNAL_MAX_BYTES_PER_FILE * (len(chosen) + 1)):
            break
        chosen.append(logs[number])
    return chosen


def journal_entries(part: PartitionRound) -> Iterator[JournalEntry]:
    """One, unless a leader's log has several epochs there, or gaps: each row is of one epoch and has none."""
    [chunk] = part.chunks
    partition, position = part.owner.partition, chunk.position
    for start, end in _runs(chunk.headers, part.log.compacted_to):
        first, last, batches = chunk.headers[start], chunk.headers[end - 1], chunk.batches[start:end]
        yield JournalEntry(
            partition.topic_id,
            partition.partition,
            first.leader_epoch,
            first.base_offset,
            last.next_offset,
            chunk.base_offset,
            position,
            batches,
        )
        position += sum(map(len, batches))


def _runs(headers: Sequence[BatchHeader], compacted_to: int) -> list[tuple[int, int]]:
    """Of consecutive batches of one epoch, as (first, behind the last)."""
    if headers[0].leader_epoch == headers[-1].leader_epoch and headers[0].base_offset >= compacted_to:
        return [(0, len(headers))]
    breaks = [
        number
        for number, (one, following) in enumerate(pairwise(headers), start=1)
        if (one.leader_epoch, one.next_offset) != (following.leader_epoch, following.base_offset)
    ]
    return list(pairwise([0, *breaks, len(headers)]))
