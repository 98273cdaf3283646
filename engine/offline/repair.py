"""Repair of a log dir that no broker has open, without the loss of acknowledged records (RULES L5).

It does what a start does: replay the journal, truncate torn tails, remove temporary files. It also writes footers
again, if the segment is sound. **If the loss is accepted, a log with missing or damaged records is truncated before the
damage**, so that it takes appends again; the removed bytes are kept in files beside it. A damaged batch within a log
that is complete otherwise stays: it is never served, and consumers can go on behind it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.commit.journal_format import Barrier, BarrierKind
from engine.commit.replay import apply_barrier
from engine.errors import StorageError
from engine.files.filesystem import FileSystem
from engine.log_dirs.layout import INDEX, identity_of, prepare, write_clean_marker
from engine.log_dirs.stray_files import resume
from engine.logs.log import Log
from engine.logs.recovery.checkpoints import PartitionCheckpoint, PartitionKey, key_of, write_checkpoint
from engine.logs.recovery.recovery import LastKnown, open_log
from engine.logs.segments.footer import footer_name
from engine.logs.segments.segment import (
    QUARANTINED_SUFFIX,
    TruncationPoint,
    segment_bases,
    segment_name,
    truncate_segments,
)
from engine.logs.transactions.aborted import aborted_index_name
from engine.logs.transactions.aborted_files import write_aborted
from engine.offline.inspection import (
    PartitionFiles,
    SegmentFile,
    aborted_problem,
    is_what_was_sealed,
    partitions,
    seal,
    segment_files,
    verify,
)
from engine.offline.transactions import LogTransactions, transactions_of

COPIED_AT_ONCE_BYTES = 1024 * 1024


class RepairReport(NamedTuple):
    """The lines of a repair: what was done, and what is still wrong."""

    done: Sequence[str]
    unrepaired: Sequence[str]


def repair(filesystem: FileSystem, path: str, *, accept_loss: bool = False, drops_index: bool = False) -> RepairReport:
    """Repair all partitions of log dir `path`. Raises StoreRefused, StorageError."""
    prepared = resume(filesystem, path, prepare(filesystem, path, identity_of(filesystem, path)))
    try:
        done, unrepaired = list(prepared.journal.problems), list[str]()
        points = dict(prepared.checkpoint.partitions)
        may_truncate = accept_loss or not prepared.checkpoint.has_lost
        for partition in partitions(filesystem, path):
            one = _Repair(filesystem, partition, points, accept_loss=accept_loss, may_truncate=may_truncate)
            one.run()
            done += one.done
            unrepaired += one.unrepaired
        after = prepared.checkpoint._replace(
            partitions=points, has_lost=prepared.checkpoint.has_lost and bool(unrepaired)
        )
        if after != prepared.checkpoint:
            write_checkpoint(filesystem, path, after)
        if drops_index:
            _drop_index(filesystem, f"{path}/{INDEX}")
            done.append(f"{path}/{INDEX} was dropped")
        if prepared.is_clean and not done and not prepared.to_scan:
            write_clean_marker(filesystem, path)
    finally:
        prepared.lock.release()
    return RepairReport(done, unrepaired)


class _Repair:
    """The repair of one partition."""

    def __init__(
        self,
        filesystem: FileSystem,
        partition: PartitionFiles,
        points: dict[PartitionKey, PartitionCheckpoint],
        *,
        accept_loss: bool,
        may_truncate: bool,
    ) -> None:
        self.done: list[str] = []
        self.unrepaired: list[str] = []
        self._filesystem = filesystem
        self._partition = partition
        self._points = points
        self._key = key_of(partition.identity)
        self._accept_loss = accept_loss
        self._may_truncate = may_truncate

    def run(self) -> None:
        if not any(self._key[0]):
            self.unrepaired.append(f"{self._partition.directory} does not say whose it is")
            return
        directory = self._partition.directory
        log = self._open()
        if log.damaged_from is not None and (self._accept_loss or self._is_in_the_tier()):
            self._give_up(log, log.damaged_from)
            log = self._open()
        if log.damaged_from is not None:
            self.unrepaired.append(f"{directory} is damaged from offset {log.damaged_from} on: it takes no appends")
            return
        transactions = transactions_of(self._filesystem, directory)
        for segment in segment_files(self._filesystem, directory):
            self._repair_segment(segment, transactions)

    @property
    def _point(self) -> PartitionCheckpoint:
        return self._points.get(self._key, PartitionCheckpoint())

    def _open(self) -> Log:
        last_known = LastKnown(is_clean=False, checkpoint=self._point, may_truncate=self._may_truncate)
        log = open_log(self._filesystem, self._partition.directory, last_known)
        self.done += log.problems
        return log

    def _repair_segment(self, segment: SegmentFile, transactions: LogTransactions) -> None:
        """Repair the footer and the aborted index of a segment that is sound."""
        directory = self._partition.directory
        verdict = verify(self._filesystem, self._partition, segment._replace(footer=None, footer_problem=None))
        if verdict.problem is not None:
            self.unrepaired.append(f"{directory}/{segment_name(segment.base_offset)}: {verdict.problem}")
            return
        if aborted_problem(self._filesystem, self._partition, segment, verdict, transactions) is not None:
            self._index_aborted(segment, transactions)
        is_right = is_what_was_sealed(self._partition.identity, segment, verdict.tally)
        name = f"{directory}/{footer_name(segment.base_offset)}"
        if not is_right and not self._accept_loss:
            self.unrepaired.append(
                f"{directory}/{segment_name(segment.base_offset)}: its content differs from its footer"
            )
        elif segment.next_base_offset is None or not transactions.is_stable(segment.next_base_offset):
            return
        elif segment.footer is None or not is_right:
            seal(self._filesystem, self._partition, segment, verdict, transactions)
            self.done.append(f"{name} was written" + (" anew" if segment.footer or segment.footer_problem else ""))

    def _index_aborted(self, segment: SegmentFile, transactions: LogTransactions) -> None:
        directory, base_offset = self._partition.directory, segment.base_offset
        path = f"{directory}/{aborted_index_name(base_offset)}"
        if segment.next_base_offset is None:  # a start reads it from the log
            self._filesystem.unlink(path)
            self.done.append(f"{path} was removed")
        else:
            aborted = transactions.ended_in(base_offset, segment.next_base_offset)
            write_aborted(self._filesystem, directory, base_offset, aborted)
            self.done.append(f"{path} was written anew")

    def _give_up(self, log: Log, offset: int) -> None:
        """Accept a loss: the log ends before the damage, or begins behind it."""
        directory, bases = self._partition.directory, segment_bases(self._filesystem, self._partition.directory)
        if bases and bases[0] > self._point.first_local_offset:
            self._begin_later(bases[0])
            return
        base_offset, position = log.active.base_offset, log.active.size_bytes
        if not bases:  # the remote tier still has its part, and appends go on behind that
            self._filesystem.open(log.path_of(base_offset), create=True).fdatasync()
            self._filesystem.sync_dir(directory)
        self._quarantine(base_offset, position, [base for base in bases if base > base_offset])
        barrier = Barrier(*self._key, BarrierKind.TRUNCATED, offset, base_offset, position)
        apply_barrier(self._points, barrier)
        self._points[self._key] = _truncated_point(self._points[self._key], offset, log.epochs.latest)
        truncate_segments(self._filesystem, directory, TruncationPoint(offset, base_offset, position))
        self.done.append(
            f"{directory} ends before offset {offset}: the records behind it are in files *{QUARANTINED_SUFFIX}"
        )

    def _is_in_the_tier(self) -> bool:
        """Whether the tier has everything that is missing before the first file."""
        point, bases = self._point, segment_bases(self._filesystem, self._partition.directory)
        return bool(bases) and point.first_local_offset < bases[0] <= point.tiered_to

    def _begin_later(self, base_offset: int) -> None:
        """Move the local start, or the log start, to the first file.

        With a remote tier, the log start stays: moving it would also give up the records in the tier.
        """
        directory, point = self._partition.directory, self._point
        if base_offset <= point.tiered_to:
            self._points[self._key] = point._replace(local_start_offset=base_offset)
            self.done.append(
                f"{directory} has no files below offset {base_offset}: the remote tier has the records before it"
            )
        elif point.log_start_offset < point.local_start_offset:
            self.unrepaired.append(
                f"{directory} has no files below offset {base_offset}, and the remote tier ends before it"
            )
        else:
            self._points[self._key] = point._replace(log_start_offset=base_offset)
            self.done.append(f"{directory} begins at offset {base_offset}: the records before it are lost")

    def _quarantine(self, base_offset: int, position: int, behind: Sequence[int]) -> None:
        filesystem, directory = self._filesystem, self._partition.directory
        paths = [f"{directory}/{segment_name(base)}" for base in (base_offset, *behind)]
        taken = [path for path in paths if filesystem.exists(path + QUARANTINED_SUFFIX)]
        if taken:
            raise StorageError(f"{taken[0]}{QUARANTINED_SUFFIX} is there already: move it away")
        source = filesystem.open(paths[0])
        if source.size() > position:
            target = filesystem.open(paths[0] + QUARANTINED_SUFFIX, create=True)
            for start in range(position, source.size(), COPIED_AT_ONCE_BYTES):
                target.write_at([source.read_at(start, COPIED_AT_ONCE_BYTES)], start - position)
            target.fdatasync()
        for path in reversed(paths[1:]):
            filesystem.rename(path, path + QUARANTINED_SUFFIX)
        filesystem.sync_dir(directory)


def _truncated_point(point: PartitionCheckpoint, offset: int, leader_epoch: int) -> PartitionCheckpoint:
    """The checkpoint of a log that now ends at `offset`.

    If the log was compacted beyond it, records that are given up may have replaced records below: other replicas may
    still have those (RULES K19). Later appends have no gaps.
    """
    start_offset = min(point.log_start_offset, offset)
    if point.compacted_to <= offset:
        return point._replace(log_start_offset=start_offset)
    return point._replace(
        log_start_offset=start_offset,
        compacted_to=offset,
        replaced_to=max(point.replaced_to, point.compacted_to),
        replaced_in=max(point.replaced_in, leader_epoch),
    )


def _drop_index(filesystem: FileSystem, directory: str) -> None:
    for name in filesystem.list_dir(directory):
        filesystem.unlink(f"{directory}/{name}")
