"""Differences of two sequences that should have the same rows in the same order, whatever their offsets are: pure.

Both sequences are read once, side by side. Where they differ, a window of the next rows shows how they continue
together: the rows between are missing or unexpected. If the next common rows lie beyond the window, each pair of rows
counts as different.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Final, NamedTuple

import numpy as np

from spark_connectors.jobs.comparison.search import Integers, Kind
from spark_connectors.jobs.digest import Words

WINDOW: Final = 1024


class Rows(NamedTuple):
    """Hash and offset of each row."""

    hashes: Words
    offsets: Integers

    def part(self, begin: int, end: int | None = None) -> Rows:
        return Rows(self.hashes[begin:end], self.offsets[begin:end])


class Parting(NamedTuple):
    """A difference of two sequences: `rows` rows, with the first and the last offset on each side; None for a side
    without such rows.
    """

    kind: Kind
    rows: int
    left: tuple[int, int] | None
    right: tuple[int, int] | None


def partings(left: Iterable[Rows], right: Iterable[Rows], window: int = WINDOW) -> Iterator[Parting]:
    """All differences, in order."""
    ours, theirs = _Ahead(left), _Ahead(right)
    while ours.fill(window) and theirs.fill(window):
        count = min(len(ours.held.hashes), len(theirs.held.hashes))
        same = ours.held.hashes[:count] == theirs.held.hashes[:count]
        together = count if same.all() else int(np.argmin(same))
        ours.drop(together)
        theirs.drop(together)
        if together < count and ours.fill(window) and theirs.fill(window):
            yield from _parting(ours, theirs, window)
    yield from _left_over(ours, theirs)


class _Ahead:
    """Rows of a side that were read and are not compared yet, and the hash of the last compared row."""

    def __init__(self, rows: Iterable[Rows]) -> None:
        self._rows = iter(rows)
        self.held = Rows(np.empty(0, np.uint64), np.empty(0, np.int64))
        self.last: int | None = None
        self.is_over = False

    def fill(self, count: int) -> bool:
        """Read until `count` rows are held, if there are so many. False: there are no more rows."""
        while len(self.held.hashes) < count and not self.is_over:
            more = next(self._rows, None)
            if more is None:
                self.is_over = True
            else:
                self.held = Rows(*(np.concatenate(both) for both in zip(self.held, more, strict=True)))
        return len(self.held.hashes) > 0

    def drop(self, count: int) -> None:
        if count:
            self.last = int(self.held.hashes[count - 1])
            self.held = self.held.part(count)


def _parting(ours: _Ahead, theirs: _Ahead, window: int) -> Iterator[Parting]:
    """Differences of the next rows, from two rows that differ up to the next common rows in the window."""
    left, right = ours.held.part(0, window), theirs.held.part(0, window)
    hashes = left.hashes.tolist(), right.hashes.tolist()
    steps = SequenceMatcher(None, *hashes, autojunk=False).get_opcodes()
    sees_all = (
        ours.is_over and theirs.is_over and len(ours.held.hashes) + len(theirs.held.hashes) <= sum(map(len, hashes))
    )
    if not sees_all and len(steps) > 1 and steps[-1][0] != "equal":
        steps.pop()  # the difference may continue behind the window
    known = {*hashes[0], ours.last}
    for operation, begin, end, their_begin, their_end in steps:
        if operation != "equal":
            yield from _stretch_partings(left.part(begin, end), right.part(their_begin, their_end), known)
    ours.drop(steps[-1][2])
    theirs.drop(steps[-1][4])


def _stretch_partings(left: Rows, right: Rows, known: set[int | None]) -> Iterator[Parting]:
    """Differences of a stretch, pairs first. `known` are hashes of rows nearby on the left."""
    pairs = min(len(left.hashes), len(right.hashes))
    if pairs:
        yield Parting(Kind.DIFFERENT, pairs, _ends(left.part(0, pairs)), _ends(right.part(0, pairs)))
    if len(left.hashes) > pairs:
        yield Parting(Kind.MISSING, len(left.hashes) - pairs, _ends(left.part(pairs)), None)
    if len(right.hashes) > pairs:
        is_doubled = known.issuperset(right.hashes[pairs:].tolist())
        kind = Kind.DOUBLED if is_doubled else Kind.UNEXPECTED
        yield Parting(kind, len(right.hashes) - pairs, None, _ends(right.part(pairs)))


def _left_over(ours: _Ahead, theirs: _Ahead) -> Iterator[Parting]:
    """The remaining rows of a side, after the other side has ended."""
    for side, kind in ((ours, Kind.MISSING), (theirs, Kind.UNEXPECTED)):
        rows, first, last = 0, 0, 0
        while side.fill(1):
            first = first if rows else int(side.held.offsets[0])
            rows, last = rows + len(side.held.offsets), int(side.held.offsets[-1])
            side.drop(len(side.held.offsets))
        if rows:
            ends = (first, last)
            yield Parting(kind, rows, ends if side is ours else None, ends if side is theirs else None)


def _ends(rows: Rows) -> tuple[int, int]:
    return int(rows.offsets[0]), int(rows.offsets[-1])
