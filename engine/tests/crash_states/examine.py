"""Reopens a crash image with the real recovery, and compares the served records with the legal ones.

The examination goes on with retries, the next sequence, and an append. Its operations on the disk are recorded, too,
for a second crash: after it all records must be there that were shown after the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from engine.api import Isolation, PartitionLog
from engine.batches.batch import HEADER_SIZE_BYTES, parse_header, walk_records
from engine.errors import OutOfOrderSequence
from engine.files.filesystem import File
from engine.index.rows import ENTRY, following, partition_key, read_entry, read_offset
from engine.log_dirs.layout import directory_name
from engine.logs.recovery.checkpoints import PartitionCheckpoint
from engine.logs.segments.segment import segment_name, walk_headers
from engine.logs.segments.sparse_index import Entry
from engine.offline.inspection import PartitionFiles, segment_files, verify
from engine.partitions.partition import Partition
from engine.tests.crash_states.life import NOW_MS, OPTIONS, Life, living, next_sequence, run_seeded
from engine.tests.crash_states.timeline import NEVER, Batch, Content, Legal, RecordingFileSystem, Timeline
from engine.tests.crash_states.transactions import decided
from testkit.fake_tier import FakeTier
from testkit.logs import bytes_of, fates, read, read_committed

EVERYTHING = Isolation.READ_UNCOMMITTED
EPOCH_POSITION = 12
PATCHED_BYTES = EPOCH_POSITION + 4  # base offset and leader epoch are outside of the CRC; the length is not patched
HARMLESS = "as a crash leaves "  # the last frame of the journal, or the tail of a segment


class Anomaly(Exception):
    """A crash image that breaks a promise."""


@dataclass
class Asked:
    """A partition to open on the image."""

    timeline: Timeline
    legal: Legal
    after_power_cut: Legal  # legal if the power fails before the partition is open
    is_deleted: bool = False  # opening it creates a new one


@dataclass
class Validation:
    """An examined image, with the operations since the image was made. `timelines`: they begin where those of the
    workload ended."""

    filesystem: RecordingFileSystem
    timelines: list[Timeline]


def examine(
    image: RecordingFileSystem, asked: Sequence[Asked], leader_epoch: int, seed: int, tier: FakeTier
) -> Validation:
    """Examine an image, and record the operations of the examination in it. `tier`: as it was at the crash. Raises
    Anomaly."""
    image.operations.clear()
    done = Validation(image, [])
    run_seeded(partial(_examine, done, asked, leader_epoch, seed, tier), seed)
    return done


async def _examine(done: Validation, asked: Sequence[Asked], leader_epoch: int, seed: int, tier: FakeTier) -> None:
    problems: list[str] = []
    known = {one.timeline.partition.topic_id for one in asked if not one.is_deleted}
    async with living(done.filesystem, seed, leader_epoch, problems, tier) as life:
        await life.store.strays.apply_fates(fates(lambda topic_id, _: topic_id in known))
        for one in asked:
            done.timelines.append(await _check_opened(life, one))
        for timeline in done.timelines:
            _check_index(life, timeline)
            _check_footers(life, timeline)
            await _check_answers(life, timeline)
            await _check_committed(life, timeline)
            await _check_producers(life, timeline)
        await _leave(life, done.timelines)
    serious = [problem for problem in problems if HARMLESS not in problem]
    if serious:
        raise Anomaly(f"reported: {serious}")


async def _check_opened(life: Life, asked: Asked) -> Timeline:
    old, legal = asked.timeline, asked.legal
    timeline = Timeline(old.partition, old.is_async, NEVER, before=asked.after_power_cut, is_compacted=old.is_compacted)
    log = await life.open(timeline)
    where = f"{old.partition.topic}-{old.partition.partition}"
    if log.log_start_offset not in legal.starts:
        raise Anomaly(f"{where}: log start {log.log_start_offset}, not in {legal.starts}")
    stored = await _read_all(log)
    for content in legal.contents:
        if (_is_compaction_of if old.is_compacted else _matches)(stored, content, log):
            break
    else:
        counts = [len(content) for content in legal.contents]
        ends = [content[-1].next_offset if content else 0 for content in legal.contents]
        shown = f"{len(stored)} batches from {log.log_start_offset} to {log.high_watermark} of {log.log_end_offset}"
        raise Anomaly(f"{where}: {shown}; legal are {counts} up to {ends}")
    if log.last_stable_offset < legal.stable_offset:
        raise Anomaly(f"{where}: stable to {log.last_stable_offset}, but was to {legal.stable_offset}")
    timeline.content, timeline.start = content, log.log_start_offset
    timeline.opened_at = life.now
    life.filesystem.timelines.append(timeline)
    return timeline


def _matches(stored: Sequence[bytes], content: Content, log: PartitionLog) -> bool:
    end_offset = max(content[-1].next_offset if content else 0, log.log_start_offset)
    visible = [batch for batch in content if batch.next_offset > log.log_start_offset]
    return (
        log.high_watermark == log.log_end_offset == end_offset
        and len(stored) == len(visible)
        and all(_is_same(one, batch) for one, batch in zip(stored, visible, strict=True))
    )


def resident_of(log: PartitionLog) -> Partition:
    assert isinstance(log, Partition)
    return log


def _is_compaction_of(stored: Sequence[bytes], content: Content, log: PartitionLog) -> bool:
    """Whether the log has only records that were sent, the newest of each key, and all above the compacted part."""
    compacted_to = resident_of(log).log.compacted_to
    start, end = log.log_start_offset, max(content[-1].next_offset if content else 0, log.log_start_offset)
    found = {offset: one for offset, one in _records(stored).items() if offset >= start}
    sent = {
        batch.base_offset + number: one
        for batch in content
        for number, one in enumerate(batch.keyed)
        if batch.base_offset + number >= start
    }
    committed = decided(content, end).offsets
    newest = {key: offset for offset, (key, _) in sent.items() if offset in committed}
    needed = {*newest.values(), *(offset for offset in sent if offset >= compacted_to)}
    return log.high_watermark == log.log_end_offset == end and found.items() <= sent.items() and needed <= found.keys()


def _records(stored: Sequence[bytes]) -> dict[int, tuple[bytes, bytes | None]]:
    return {
        parse_header(batch).base_offset + one.offset_delta: (one.key or b"", one.value)
        for batch in stored
        if not parse_header(batch).is_control
        for one in walk_records(parse_header(batch), batch[HEADER_SIZE_BYTES:])
    }


def _is_same(stored: bytes, batch: Batch) -> bool:
    header = parse_header(stored)
    return (
        header.base_offset == batch.base_offset
        and header.leader_epoch == batch.leader_epoch
        and stored[8:EPOCH_POSITION] == batch.sent[8:EPOCH_POSITION]
        and stored[PATCHED_BYTES:] == batch.sent[PATCHED_BYTES:]
    )


async def _read_all(log: PartitionLog) -> list[bytes]:
    """Read the bytes of all batches."""
    found: list[bytes] = []
    position = log.log_start_offset
    while position < log.high_watermark:
        data = bytes_of((await read(log, position)).records)
        start = len(found)
        while len(data) >= HEADER_SIZE_BYTES and len(data) >= (size_bytes := parse_header(data).size_bytes):
            found.append(data[:size_bytes])
            position = parse_header(data).next_offset
            data = data[size_bytes:]
        if len(found) == start:
            raise Anomaly(f"nothing at offset {position} below the high watermark {log.high_watermark}")
    return found


def _check_index(life: Life, timeline: Timeline) -> None:
    """Check that each stored entry names a batch of the log (RULES L6), and none that a crash took."""
    log, filesystem = life.logs[timeline], life.filesystem
    partition = timeline.partition
    prefix = ENTRY + partition_key(partition.topic_id, partition.partition)
    for key, value in life.indexes[-1].scan(prefix, following(prefix)):
        base_offset, entry = read_offset(key[:-8]), read_entry(key, value)
        path = f"{OPTIONS.log_dirs[0]}/{directory_name(partition)}/{segment_name(base_offset)}"
        if base_offset < log.log_start_offset and not filesystem.exists(path):
            continue  # left over from a segment that was deleted: offsets never come again
        is_cold = base_offset < resident_of(log).log.cold.local_start_offset
        file = life.tier.open(partition, base_offset) if is_cold else filesystem.open(path)
        if entry not in (_entries_of(file) if entry.offset < log.log_end_offset else ()):
            raise Anomaly(f"{path}: the index has {entry}, the log ends at {log.log_end_offset}")


def _entries_of(segment: File) -> Iterator[Entry]:
    """Index entries of all batches of a segment."""
    newest_ms = -1
    for at in walk_headers(segment, 0, segment.size()):
        if at.header.record_count:
            newest_ms = max(newest_ms, at.header.max_timestamp_ms)
        yield Entry(at.header.base_offset, at.position, newest_ms)


def _check_footers(life: Life, timeline: Timeline) -> None:
    """Check that sealed segments equal their footers, and that the active segment is not sealed."""
    directory = f"{OPTIONS.log_dirs[0]}/{directory_name(timeline.partition)}"
    compacted_to = resident_of(life.logs[timeline]).log.compacted_to
    partition = PartitionFiles(directory, timeline.partition, PartitionCheckpoint(compacted_to=compacted_to))
    for segment in segment_files(life.filesystem, directory):
        if segment.footer is None and segment.footer_problem is None:
            continue
        problem = verify(life.filesystem, partition, segment).problem
        if problem is not None or segment.next_base_offset is None:
            raise Anomaly(f"{directory}: the segment at {segment.base_offset} is sealed: {problem or 'it is the last'}")


async def _check_answers(life: Life, timeline: Timeline) -> None:
    """Check that answers from the index equal those of a walk over all records."""
    log = life.logs[timeline]
    records = [
        (batch.base_offset + number, time)
        for batch in timeline.content
        for number, time in enumerate(batch.timestamps_ms)
        if batch.base_offset + number >= timeline.start
    ]
    if timeline.is_compacted:
        there = _records(await _read_all(log))
        markers = {batch.base_offset for batch in timeline.content if batch.outcome is not None}
        records = [(offset, time) for offset, time in records if offset in there or offset in markers]
    for timestamp_ms in (NOW_MS, NOW_MS + life.rng.randrange(1000), NOW_MS + 1000):
        answer = await log.offset_for_timestamp(timestamp_ms, EVERYTHING)
        expected = next((offset for offset, time in records if time >= timestamp_ms), -1)
        if answer.offset != expected:
            raise Anomaly(f"timestamp {timestamp_ms}: offset {answer.offset}, not {expected}")
    if records:
        offset, _ = life.rng.choice(records)
        header = parse_header(bytes_of((await read(log, offset, 1)).records))
        if not header.base_offset <= offset < header.next_offset:
            raise Anomaly(f"asked for offset {offset}, got the batch at {header.base_offset}")


async def _check_committed(life: Life, timeline: Timeline) -> None:
    """Check that read_committed readers get all records of committed transactions, and none of aborted ones."""
    log = life.logs[timeline]
    committed, stable_offset = decided(timeline.content, log.high_watermark)
    remaining = tuple(batch for batch in timeline.content if batch.next_offset > timeline.start)
    if log.last_stable_offset != max(stable_offset, timeline.start):  # a transaction without records may be forgotten
        committed, stable_offset = decided(remaining, log.high_watermark)
    first_offsets = resident_of(log).log.producers.open_transactions.values()
    local_start = resident_of(log).log.local_start_offset
    if log.last_stable_offset == local_start > timeline.start and any(offset < local_start for offset in first_offsets):
        return  # a truncation took its marker; segments in the tier keep the outcome that they were uploaded with
    if log.last_stable_offset == timeline.start and any(offset < timeline.start for offset in first_offsets):
        committed = frozenset()  # an async log has lost the records of a transaction that was open
    elif log.last_stable_offset != max(stable_offset, timeline.start):
        where = f"{timeline.partition.topic}-{timeline.partition.partition}"
        raise Anomaly(f"{where}: stable to {log.last_stable_offset}, not to {stable_offset}")
    expected = {offset for offset in committed if offset >= timeline.start}
    for size_bytes in (1, 1 << 20):
        seen = {one for one in await read_committed(log, timeline.start, size_bytes) if one >= timeline.start}
        missing = expected - seen
        if timeline.is_compacted:
            missing -= _replaced(timeline, expected, resident_of(log).log.compacted_to)
        if missing or seen - expected:
            raise Anomaly(f"of what is committed {sorted(missing)} are missing, and {sorted(seen - expected)} are not")


def _replaced(timeline: Timeline, committed: set[int], compacted_to: int) -> set[int]:
    """Offsets that compaction may have removed, because there is a newer record with the key."""
    keys = {
        batch.base_offset + number: key for batch in timeline.content for number, (key, _) in enumerate(batch.keyed)
    }
    newest = {keys[offset]: offset for offset in sorted(committed)}
    return {offset for offset in committed if offset < compacted_to and newest[keys[offset]] > offset}


async def _check_producers(life: Life, timeline: Timeline) -> None:
    """Check that a retry is recognised, a gap is refused, and the next batch and one without a producer are
    appended."""
    log = life.logs[timeline]
    last: dict[int, list[Batch]] = {}
    for batch in timeline.content:
        if batch.producer_id >= 0 and batch.base_offset >= timeline.start and batch.outcome is None:
            last.setdefault(batch.producer_id, []).append(batch)
    for producer_id, batches in last.items():
        batch = life.rng.choice(batches[-5:])
        result = await log.append(memoryview(bytearray(batch.sent)), acks=-1).wait()
        if result.base_offset != batch.base_offset:
            raise Anomaly(f"the retry of the batch at {batch.base_offset} went to {result.base_offset}")
        await _send(life, timeline, producer_id)
        skipped = life.next_batch(timeline, producer_id)
        ahead = Timeline(
            timeline.partition,
            timeline.is_async,
            0,
            content=(*timeline.latest, skipped),
            is_compacted=timeline.is_compacted,
        )
        gap = life.next_batch(ahead, producer_id)
        assert gap.sequence == next_sequence(ahead, producer_id)
        try:
            await log.append(memoryview(bytearray(gap.sent)), acks=-1).wait()
        except OutOfOrderSequence:
            continue
        raise Anomaly(f"a gap before sequence {gap.sequence} was taken")
    await _send(life, timeline, -1)


async def _send(life: Life, timeline: Timeline, producer_id: int) -> None:
    batch = life.next_batch(timeline, producer_id)
    result = await life.send(timeline, batch).wait()
    life.filesystem.look()
    if result.base_offset != batch.base_offset:
        raise Anomaly(f"an append went to {result.base_offset}, not {batch.base_offset}")


async def _leave(life: Life, timelines: Sequence[Timeline]) -> None:
    """End the broker at once, after a checkpoint, or by a stop."""
    way = life.rng.randrange(3)
    if way:
        await trio.sleep(2.5)
        for timeline in timelines:
            _check_index(life, timeline)
            _check_footers(life, timeline)
    if way == 2:
        await life.store.close()
