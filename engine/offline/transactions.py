"""Transactions of a log that no broker has open: read from all its batches, without indexes and later snapshots."""

from collections.abc import Sequence
from typing import NamedTuple

from engine.api import AbortedTransaction, Outcome
from engine.files.filesystem import FileSystem
from engine.logs.producers.snapshot import SnapshotDamaged, read_snapshot
from engine.logs.producers.state import ProducerTable, rebuilt
from engine.logs.producers.walk import Extent, produced
from engine.logs.segments.segment import segment_bases, segment_name
from engine.logs.transactions.aborted_indexes import touches


class LogTransactions(NamedTuple):
    """The aborted transactions of a log in the order of their markers, and the start of the first open one, or None."""

    aborted: Sequence[AbortedTransaction]
    open_from: int | None

    def touching(self, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with offsets in a segment."""
        return [one for one in self.aborted if touches(one, base_offset, end_offset)]

    def ended_in(self, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions whose markers are in a segment: the content of its aborted index."""
        return [one for one in self.aborted if base_offset <= one.last_offset < end_offset]

    def is_stable(self, end_offset: int) -> bool:
        """Whether every transaction that begins below `end_offset` has ended."""
        return self.open_from is None or end_offset <= self.open_from


def transactions_of(filesystem: FileSystem, directory: str) -> LogTransactions:
    """The transactions of a log, as far as it can be read.

    Transactions that began before the first segment are known only from a snapshot there.
    """
    bases = segment_bases(filesystem, directory)
    if not bases:
        return LogTransactions([], None)
    try:
        table = read_snapshot(filesystem, directory, bases[0]).producers
    except SnapshotDamaged:
        table = ProducerTable()
    extents = [Extent(base, filesystem.size(f"{directory}/{segment_name(base)}"), None) for base in bases]
    batches = produced(filesystem, directory, extents, bases[0], 2**63 - 1, lambda _segment, _damage: None)
    table, ended = rebuilt(table, batches)
    aborted = [one.aborted() for one in ended if one.outcome is Outcome.ABORT]
    return LogTransactions(aborted, next(iter(table.open_transactions.values()), None))
