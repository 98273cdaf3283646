"""What of a sync goes to the journal, and what to the files of its logs. Pure."""

from collections.abc import Sequence

from engine.commit.appends import PartitionRound
from engine.commit.journal_format import JournalEntry
from engine.logs.log import Log

JOURNAL_MAX_BYTES = 4 * 1024 * 1024
JOURNAL_MAX_BYTES_PER_FILE = 64 * 1024  # above it, syncing the file costs less than writing its bytes twice


def journalable(parts: Sequence[PartitionRound]) -> list[list[PartitionRound]]:
    """Those of logs that may be journaled: not if what an async round left unsynced comes before, which a replay would
    miss, nor if a part begins a segment or is of two leader epochs."""
    found: dict[Log, list[PartitionRound]] = {}
    others = set[Log]()
    for part in parts:
        first, last = part.chunks[0].headers[0], part.chunks[-1].headers[-1]
        before = found[part.log][-1].end.offset if part.log in found else part.log.covered_offset
        if part.rolls or first.base_offset > before or first.leader_epoch != last.leader_epoch:
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


def journal_entry(part: PartitionRound) -> JournalEntry:
    [chunk] = part.chunks
    partition = part.owner.partition
    return JournalEntry(
        partition.topic_id,
        partition.partition,
        chunk.headers[0].leader_epoch,
        chunk.headers[0].base_offset,
        chunk.headers[-1].next_offset,
        chunk.base_offset,
        chunk.position,
        chunk.batches,
    )
