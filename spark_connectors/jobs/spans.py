"""Ranges of offsets of partitions: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """The offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def joined(spans: Iterable[Span]) -> Sequence[Span]:
    """The same offsets in as few spans as possible, ascending, each offset once."""
    found: list[Span] = []
    for one in sorted(one for one in spans if one.size > 0):
        if found and found[-1].partition == one.partition and one.start <= found[-1].end:
            found[-1] = found[-1]._replace(end=max(found[-1].end, one.end))
        else:
            found.append(one)
    return found
