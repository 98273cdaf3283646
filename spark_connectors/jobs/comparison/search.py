"""Search for the differences of two sides that should have the same rows, without a whole side in memory: pure.

A side is read in *cells* of a number of offsets of one partition, and each cell has the digest of its rows. Cells that
differ are read again in smaller ones, down to cells of one offset. Then it is known which rows are missing, doubled or
different. Cells begin at multiples of their width, so the pieces in which a side is read, and their order, do not
matter. Equal sides are read once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.jobs.digest import Digest, Words, row_hashes
from spark_connectors.jobs.spans import Span

Integers: TypeAlias = npt.NDArray[np.int64]
Truths: TypeAlias = npt.NDArray[np.bool_]

_CELLS_WAITING: Final = 1 << 12
_NO_STARTS: Final[Mapping[int, int]] = {}
_NOWHERE: Final = -1  # partition or offset of a row that does not have its own


class CellRead(NamedTuple):
    """A request to read both sides: these spans, which do not overlap, in cells of `width` offsets."""

    spans: tuple[Span, ...]
    width: int


class Columns(NamedTuple):
    """Names of the columns for partition and offset, and of all compared columns. The offset is one of them, to
    distinguish the rows of a cell.
    """

    partition: str
    offset: str
    compared: tuple[str, ...]


class Sums(NamedTuple):
    """Sums of each cell that has rows: its place, the number of rows, and the sum of their hashes. Ascending, each cell
    once.
    """

    partitions: Integers
    numbers: Integers  # the first offset, divided by the width
    rows: Integers
    totals: Words

    @property
    def row_count(self) -> int:
        return int(self.rows.sum())


_NONE: Final = np.empty(0, np.int64)
NO_SUMS: Final = Sums(_NONE, _NONE, _NONE, np.empty(0, np.uint64))


class SpanFilter:
    """Membership test of offsets in spans that do not overlap."""

    def __init__(self, spans: Iterable[Span]) -> None:
        grouped = groupby(sorted(spans), lambda one: one.partition)
        self._edges = {partition: np.array([one[1:] for one in some], np.int64) for partition, some in grouped}

    def __call__(self, partitions: Integers, offsets: Integers) -> Truths:
        found = np.zeros(len(offsets), np.bool_)
        for partition in np.unique(partitions).tolist():
            edges = self._edges.get(partition)
            if edges is not None:
                place = np.searchsorted(edges[:, 0], offsets, "right") - 1
                found |= (partitions == partition) & (place >= 0) & (offsets < edges[place, 1])
        return found


def sums_of(
    rows: pa.RecordBatch, columns: Columns, span_filter: SpanFilter, width: int, partition_base: int = 0
) -> Sums:
    """Sums of the rows within the spans. `partition_base` is added to their partitions, to tell dead letters from rows.

    Raises the errors of `row_hashes`.
    """
    assert columns.offset in columns.compared, "rows that change places would be the same"
    partitions, offsets = _places_of(rows, columns)
    is_within = span_filter(partitions, offsets)
    if not is_within.all():
        rows = rows.filter(pa.array(is_within))
        partitions, offsets = partitions[is_within], offsets[is_within]
    hashes = row_hashes(rows, columns.compared)
    return _grouped(partitions + partition_base, offsets // width, np.ones(len(hashes), np.int64), hashes)


def _places_of(rows: pa.RecordBatch, columns: Columns) -> tuple[Integers, Integers]:
    """Partition and offset of each row."""
    partitions, offsets = (
        pc.fill_null(rows.column(name).cast(pa.int64()), _NOWHERE).to_numpy(zero_copy_only=False)
        for name in (columns.partition, columns.offset)
    )
    return partitions, offsets


def total(several: Iterable[Sums]) -> Sums:
    """Total of many small sums. They are gathered first, so that the whole is not added up again for each of them."""
    sums, waiting, cells = NO_SUMS, list[Sums](), 0
    for one in several:
        waiting.append(one)
        cells += len(one.numbers)
        if cells > max(len(sums.numbers), _CELLS_WAITING):
            sums, waiting, cells = added(sums, *waiting), [], 0
    return added(sums, *waiting)


def added(*several: Sums) -> Sums:
    return _grouped(*(np.concatenate(arrays) for arrays in zip(*several, strict=True)))


def _grouped(partitions: Integers, numbers: Integers, rows: Integers, totals: Words) -> Sums:
    if not len(numbers):
        return NO_SUMS
    order = np.lexsort((numbers, partitions))
    partitions, numbers = partitions[order], numbers[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (partitions[1:] != partitions[:-1]) | (numbers[1:] != numbers[:-1])
    firsts = np.flatnonzero(is_first)
    sums = (np.add.reduceat(each[order], firsts) for each in (rows, totals))
    return Sums(partitions[firsts], numbers[firsts], *sums)


class Kind(StrEnum):
    """Kinds of differences at an offset, as seen from the left side."""

    MISSING = "missing"  # the right side has no row there
    UNEXPECTED = "unexpected"  # only the right side has a row there
    DOUBLED = "doubled"  # the right side has the row more than once
    DIFFERENT = "different"  # the right side has another row


class Difference(NamedTuple):
    """Consecutive rows that differ in one way."""

    kind: Kind
    partition: int
    first: int
    last: int
    rows: int


class Limits(NamedTuple):
    """Limits of memory and work of a search."""

    cells: int = 1 << 18  # in one read
    width: int = 1 << 12  # smaller cells are compared offset by offset
    narrowing: int = 1 << 8  # number of parts of a larger cell
    offsets: int | None = 1 << 20  # compared one by one, in all; None: no limit


_LIMITS: Final = Limits()


class Search:
    """Search for differences. As long as `next_read` is not None, the caller reads both sides so, and calls `take`."""

    def __init__(self, spans: Sequence[Span], limits: Limits = _LIMITS) -> None:
        self._limits = limits
        self._reads: list[CellRead] = []  # to do, the next one last
        self._offsets_left = limits.offsets
        self.unexamined: list[Span] = []  # spans that differ, and that were not compared offset by offset
        wanted = tuple(one for one in spans if one.size > 0)
        if wanted:
            self._reads.append(CellRead(wanted, self._first_width(wanted)))

    @property
    def next_read(self) -> CellRead | None:
        return self._reads[-1] if self._reads else None

    def take(self, left: Sums, right: Sums, starts: Mapping[int, int] = _NO_STARTS) -> list[Difference]:
        """Take the sums of the current read; returns the differences that they show. `starts`: offsets of a partition
        before its start do not count any more.
        """
        request = self._reads.pop()
        pairs = _paired(left, right)
        found: list[Difference] = []
        if request.width == 1:
            found = list(_differences(pairs, starts))
        else:
            width = self._narrowed(request.width)
            portions = list(_portions(_differing(pairs, request, starts), width, self._limits.cells))
            self._reads += [CellRead(some, width) for some in reversed(portions)]
        self._leave_out()
        return found

    def _first_width(self, spans: Sequence[Span]) -> int:
        width = self._limits.width
        while sum(_cell_count(one, width) for one in spans) > max(self._limits.cells, 2 * len(spans)):
            width *= 2
        return width

    def _narrowed(self, width: int) -> int:
        return 1 if width <= self._limits.width else max(width // self._limits.narrowing, self._limits.width)

    def _leave_out(self) -> None:
        """Drop the next looks that exceed the limit of single offsets, and note their spans as unexamined."""
        while self._offsets_left is not None and self._reads and self._reads[-1].width == 1:
            size = sum(one.size for one in self._reads[-1].spans)
            if size <= self._offsets_left:
                self._offsets_left -= size
                return
            self.unexamined += self._reads.pop().spans


class _Pairs(NamedTuple):
    """Rows and hash sums of both sides, for each cell with rows on a side."""

    partitions: Integers
    numbers: Integers
    rows: npt.NDArray[np.int64]  # a row for each side
    totals: npt.NDArray[np.uint64]

    @property
    def differing(self) -> list[int]:
        is_same = (self.rows[0] == self.rows[1]) & (self.totals[0] == self.totals[1])
        found: list[int] = np.flatnonzero(~is_same).tolist()
        return found


def _paired(left: Sums, right: Sums) -> _Pairs:
    """Align both sides: a side has zeros in a cell where only the other side has rows."""
    both = added(left, right)
    rows = np.zeros((2, len(both.numbers)), np.int64)
    totals = np.zeros_like(rows, np.uint64)
    for side, sums in enumerate((left, right)):
        nothing = Sums(both.partitions, both.numbers, np.zeros_like(rows[0]), np.zeros_like(totals[0]))
        rows[side], totals[side] = added(sums, nothing)[2:]
    return _Pairs(both.partitions, both.numbers, rows, totals)


def _differing(pairs: _Pairs, request: CellRead, starts: Mapping[int, int]) -> list[Span]:
    """Spans of the cells that differ, within the read. The first one of each partition comes first, then the second one
    of each. So if some are left out, each partition still has some.
    """
    edges: dict[int, list[Span]] = {}
    for one in sorted(request.spans):
        edges.setdefault(one.partition, []).append(one)
    ranked = []
    rank: dict[int, int] = {}
    for index in pairs.differing:
        partition, begin = int(pairs.partitions[index]), int(pairs.numbers[index]) * request.width
        rank[partition] = rank.get(partition, 0) + 1
        for one in _overlapping(edges[partition], begin, begin + request.width):
            start = max(one.start, begin, starts.get(partition, 0))
            span = Span(partition, start, min(one.end, begin + request.width))
            if span.size > 0:
                ranked.append((rank[partition], span))
    return [span for _, span in sorted(ranked)]


def _overlapping(spans: Sequence[Span], begin: int, end: int) -> Iterator[Span]:
    """Spans that overlap [begin, end), of ascending ones."""
    place = max(bisect_right(spans, begin, key=lambda one: one.start) - 1, 0)
    while place < len(spans) and spans[place].start < end:
        if spans[place].end > begin:
            yield spans[place]
        place += 1


def _portions(spans: Sequence[Span], width: int, cells_max: int) -> Iterator[tuple[Span, ...]]:
    """Groups of spans with at most `cells_max` cells each, or with a single span."""
    portion: list[Span] = []
    count = 0
    for one in spans:
        more = _cell_count(one, width)
        if portion and count + more > cells_max:
            yield tuple(portion)
            portion, count = [], 0
        portion.append(one)
        count += more
    if portion:
        yield tuple(portion)


def _cell_count(span: Span, width: int) -> int:
    return -(-span.end // width) - span.start // width


def _differences(pairs: _Pairs, starts: Mapping[int, int]) -> Iterator[Difference]:
    """Differences in cells of one offset; consecutive ones are merged."""
    run: Difference | None = None
    before = -1
    for index in pairs.differing:
        partition, offset = int(pairs.partitions[index]), int(pairs.numbers[index])
        if offset < starts.get(partition, 0):
            continue
        (left, right), totals = pairs.rows[:, index].tolist(), pairs.totals[:, index].tolist()
        kind, rows = _difference(Digest(left, totals[0]), Digest(right, totals[1]))
        if run is not None and index == before + 1 and (kind, partition) == run[:2]:
            run = run._replace(last=offset, rows=run.rows + rows)
        else:
            if run is not None:
                yield run
            run = Difference(kind, partition, offset, offset, rows)
        before = index
    if run is not None:
        yield run


def _difference(left: Digest, right: Digest) -> tuple[Kind, int]:
    """Kind of the difference at one offset, and the number of its rows."""
    if not right.rows:
        return Kind.MISSING, left.rows
    if not left.rows:
        return Kind.UNEXPECTED, right.rows
    times, rest = divmod(right.rows, left.rows)
    if times > 1 and not rest and sum([left] * times, Digest()) == right:
        return Kind.DOUBLED, right.rows - left.rows
    return Kind.DIFFERENT, max(left.rows, right.rows)
