"""Whether transactions were seen as wholes: by who read while they were made, and by who reads in the end.

Pure bookkeeping, as `copies`. The anomalies are those of Adya, as Elle names them, for what a log allows: a record that
was read and is not there in the end was aborted (G1a); one that a reader went past is committed all the same, so that
the reader saw a part of its transaction (G1b, a fractured read); of a transaction some records are there and some are
not, in whatever partitions (torn). A log tells which version is newer by its offsets: there are no cycles to look for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN_PER_KIND = 3


class Output(NamedTuple):
    """A record that a transformer wrote; `transaction` names it, and says after a slash how many records it has."""

    partition: int
    offset: int
    transaction: str
    value: str


def check_atomicity(final: Iterable[Output], read: Sequence[Output]) -> list[str]:
    """The anomalies, a few of each kind with their number; `read` as it came to a reader that began at offset 0."""
    by_place = {(one.partition, one.offset): one for one in final}
    found = {
        "aborted read": [_told(one) for one in read if (one.partition, one.offset) not in by_place],
        "changed": [_told(one) for one in read if by_place.get((one.partition, one.offset), one) != one],
        "unordered read": _unordered(read),
        "fractured read": _passed_over(by_place, read),
        "torn": _torn(by_place.values()),
    }
    return [f"{kind} x {len(each)}: {'; '.join(each[:SHOWN_PER_KIND])}" for kind, each in found.items() if each]


def _told(one: Output) -> str:
    return f"{one.value} of {one.transaction} at {one.partition}-{one.offset}"


def _unordered(read: Sequence[Output]) -> list[str]:
    newest: dict[int, int] = {}
    found = []
    for one in read:
        if one.offset <= newest.get(one.partition, -1):
            found.append(_told(one))
        newest[one.partition] = one.offset
    return found


def _passed_over(by_place: Mapping[tuple[int, int], Output], read: Sequence[Output]) -> list[str]:
    ends: dict[int, int] = {}
    for one in read:
        ends[one.partition] = max(one.offset, ends.get(one.partition, -1))
    seen = {(one.partition, one.offset) for one in read}
    return [
        _told(one)
        for place, one in sorted(by_place.items())
        if one.offset < ends.get(one.partition, -1) and place not in seen
    ]


def _torn(final: Iterable[Output]) -> list[str]:
    counts = Counter(one.transaction for one in final)
    return [f"{count} of {name}" for name, count in counts.items() if count != int(name.rpartition("/")[2])]
