"""Inspection of a log dir that no broker has open: its content, its damage, and possible repairs.

For the command line: blocking, with the lock of the log dir held throughout. Reading changes nothing, and this module
writes only footers; engine.offline.repair repairs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from engine.api import NO_EPOCH, Marker, Outcome, TopicIdPartition
from engine.batches.batch import has_right_crc
from engine.batches.markers import parse_marker
from engine.errors import CorruptMessage, StorageError, StoreRefused
from engine.files.filesystem import FileSystem, Unreadable, read_small, replace_small
from engine.log_dirs.layout import LOCK, META, is_partition_name, stored_topic_id
from engine.logs.recovery.checkpoints import PartitionCheckpoint, read_checkpoint
from engine.logs.segments.footer import Footer, FooterDamaged, Tally, encode, footer_name, read_footer
from engine.logs.segments.segment import BatchAt, may_follow, segment_bases, segment_name, walk_headers
from engine.logs.transactions.aborted import AbortedIndexDamaged, aborted_index_name, decode_aborted
from engine.offline.transactions import LogTransactions


class PartitionFiles(NamedTuple):
    """A partition directory, and its checkpoint."""

    directory: str
    identity: TopicIdPartition
    checkpoint: PartitionCheckpoint


class SegmentFile(NamedTuple):
    """A segment file, and its footer."""

    base_offset: int
    size_bytes: int
    next_base_offset: int | None  # None: the active segment
    footer: Footer | None
    footer_problem: str | None


class Verdict(NamedTuple):
    """The result of reading a segment, up to the first damage.

    `is_torn`: the rest may come from an append that a crash interrupted, and that was never acknowledged.
    """

    tally: Tally
    problem: str | None = None
    is_torn: bool = False
    is_unreadable: bool = False
    aborts: Mapping[int, int] = {}  # producers of abort markers, by offset


class FoundBatch(NamedTuple):
    """A batch of a segment; `marker` if it ends a transaction."""

    at: BatchAt
    is_right: bool
    marker: Marker | None


@contextmanager
def held(filesystem: FileSystem, path: str) -> Iterator[None]:
    """Hold the lock of the log dir within the block. Raises StoreRefused."""
    if not filesystem.exists(f"{path}/{META}"):
        raise StoreRefused(f"{path} is no log dir: there is no {META}")
    try:
        lock = filesystem.lock(f"{path}/{LOCK}")
    except BlockingIOError:
        raise StoreRefused(f"{path} is in use by a broker: stop it first") from None
    try:
        yield
    finally:
        lock.release()


def partitions(filesystem: FileSystem, path: str) -> list[PartitionFiles]:
    """The partitions of a log dir, by name. Raises StorageError, StoreRefused."""
    known: Mapping[tuple[bytes, int], PartitionCheckpoint] = read_checkpoint(filesystem, path).partitions
    found = []
    for name in filter(is_partition_name, filesystem.list_dir(path)):
        topic, _, number = name.rpartition("-")
        topic_id = stored_topic_id(filesystem, f"{path}/{name}") or bytes(16)
        identity = TopicIdPartition(topic_id, topic, int(number))
        point = known.get((topic_id, int(number)), PartitionCheckpoint())
        found.append(PartitionFiles(f"{path}/{name}", identity, point))
    return found


def segment_files(filesystem: FileSystem, directory: str) -> list[SegmentFile]:
    """The segments of a partition, oldest first; the last one is active."""
    bases = segment_bases(filesystem, directory)
    names = set(filesystem.list_dir(directory))
    found = []
    for base, next_base in pairwise([*bases, None]):
        assert base is not None
        footer, problem = None, None
        if footer_name(base) in names:
            try:
                footer = read_footer(filesystem, directory, base)
            except (FooterDamaged, StorageError) as error:
                problem = str(error)
        size_bytes = filesystem.size(f"{directory}/{segment_name(base)}")
        found.append(SegmentFile(base, size_bytes, next_base, footer, problem))
    return found


def batches(filesystem: FileSystem, directory: str, base_offset: int) -> Iterator[FoundBatch]:
    """The batches of a segment, and whether the CRC of each is right. Raises CorruptMessage at bytes that are no
    batch."""
    file = filesystem.open(f"{directory}/{segment_name(base_offset)}")
    for at in walk_headers(file, 0, file.size()):
        stored = file.read_at(at.position, at.header.size_bytes)
        is_right = _is_right(stored, at)
        yield FoundBatch(at, is_right, _marker(stored, at) if is_right else None)


def is_what_was_sealed(partition: TopicIdPartition, segment: SegmentFile, tally: Tally) -> bool:
    """Whether the batches are those of the segment's footer; True without a footer."""
    footer = segment.footer
    return footer is None or tally.is_of(footer, partition, segment.base_offset, segment.size_bytes)


def _marker(stored: bytes, at: BatchAt) -> Marker | None:
    """Parse a batch that may be a marker. Raises CorruptMessage."""
    return parse_marker(at.header, stored) if at.header.is_control else None


def verify(filesystem: FileSystem, partition: PartitionFiles, segment: SegmentFile) -> Verdict:
    """Read a whole segment, and check CRCs, offsets and its footer."""
    examined = _examine(filesystem, partition, segment)
    if examined.problem is not None:
        end_offset = max(examined.tally.last_offset + 1, segment.base_offset)
        is_last = segment.next_base_offset is None and not examined.is_unreadable
        is_torn = is_last and end_offset >= partition.checkpoint.recovery_point
        return examined._replace(is_torn=is_torn)
    end_offset = max(examined.tally.last_offset + 1, segment.base_offset)
    if segment.next_base_offset is not None and end_offset != segment.next_base_offset:
        problem = f"it ends with offset {end_offset - 1}, the next segment begins with {segment.next_base_offset}"
        return examined._replace(problem=problem)
    if not is_what_was_sealed(partition.identity, segment, examined.tally):
        return examined._replace(problem="its content differs from its footer")
    if segment.footer_problem is not None:
        return examined._replace(problem=segment.footer_problem)
    return examined


def aborted_problem(
    filesystem: FileSystem,
    partition: PartitionFiles,
    segment: SegmentFile,
    verdict: Verdict,
    transactions: LogTransactions,
) -> str | None:
    """The error in the aborted index of a sound segment, or None. The active segment need not have an index."""
    name = aborted_index_name(segment.base_offset)
    end_offset = max(verdict.tally.last_offset + 1, segment.base_offset)
    try:
        content = read_small(filesystem, f"{partition.directory}/{name}")
        listed = decode_aborted(content or b"", segment.base_offset, end_offset)
    except (AbortedIndexDamaged, Unreadable) as damage:
        return f"{name}: {damage}"
    for one in listed:
        if verdict.aborts.get(one.last_offset) != one.producer_id:
            return f"{name}: nothing aborts producer {one.producer_id} at offset {one.last_offset}"
    if segment.next_base_offset is not None:
        known = {(one.producer_id, one.last_offset): one.first_offset for one in listed}
        for one in transactions.ended_in(segment.base_offset, end_offset):
            if known.get((one.producer_id, one.last_offset), end_offset) > one.first_offset:
                entry_text = f"producer {one.producer_id} aborted offsets {one.first_offset} to {one.last_offset}"
                return f"{name}: it does not say that {entry_text}"
    return None


def _examine(filesystem: FileSystem, partition: PartitionFiles, segment: SegmentFile) -> Verdict:
    file = filesystem.open(f"{partition.directory}/{segment_name(segment.base_offset)}")
    compacted_to = partition.checkpoint.compacted_to
    tally, next_offset, epoch = Tally(), segment.base_offset, NO_EPOCH
    aborts: dict[int, int] = {}
    try:
        for at in walk_headers(file, 0, segment.size_bytes):
            header = at.header
            if not may_follow(header.base_offset, next_offset, compacted_to):
                raise CorruptMessage(f"offset {header.base_offset} follows {next_offset - 1} at position {at.position}")
            if header.leader_epoch < epoch or not _is_right(stored := file.read_at(at.position, header.size_bytes), at):
                raise CorruptMessage(f"the batch at position {at.position} is damaged")
            tally.add(header)
            marker = _marker(stored, at)
            if marker is not None and marker.outcome is Outcome.ABORT:
                aborts[header.base_offset] = marker.producer_id
            next_offset, epoch = header.next_offset, header.leader_epoch
    except (CorruptMessage, Unreadable) as error:
        return Verdict(tally, str(error), is_unreadable=isinstance(error, Unreadable))
    return Verdict(tally, aborts=aborts)


def _is_right(stored: bytes, at: BatchAt) -> bool:
    return len(stored) == at.header.size_bytes and has_right_crc(memoryview(stored), at.header)


def seal(
    filesystem: FileSystem,
    partition: PartitionFiles,
    segment: SegmentFile,
    verdict: Verdict,
    transactions: LogTransactions,
) -> Footer:
    """Write the footer of a finished segment that is sound, and has no open transaction."""
    filesystem.open(f"{partition.directory}/{segment_name(segment.base_offset)}").fdatasync()
    generation = int(segment.base_offset < partition.checkpoint.compacted_to)
    end_offset = segment.base_offset if segment.next_base_offset is None else segment.next_base_offset
    aborted = [one[:3] for one in transactions.touching(segment.base_offset, end_offset)]
    footer = verdict.tally.footer(partition.identity, segment.base_offset, segment.size_bytes, generation, aborted)
    replace_small(filesystem, partition.directory, footer_name(segment.base_offset), encode(footer))
    return footer
