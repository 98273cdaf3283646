"""Check that transactions were seen as wholes, by readers during the run and by a final read.

Pure bookkeeping, as `copies`. The anomalies have Adya's names, as Elle uses them, as far as a log allows them:

G1a: a record was read, and is missing in the end, so that its transaction was aborted. G1b (a fractured read): a reader
went past a record that is committed, so that it saw only a part of its transaction. Torn: some records of a transaction
are in the log and some are not, in any partitions.

The offsets of a log say which version is newer: there are no cycles to look for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN_PER_KIND = 3


class Output(NamedTuple):
    """A record that a transformer wrote. `transaction`: its name, a slash, and the number of its records."""

    partition: int
    offset: int
    transaction: str
    value: str


def check_atomicity(final: Iterable[Output], read: Sequence[Output]) -> list[str]:
    """The anomalies, a few of each kind with their number. `read`: records in the order of a reader that began at
    offset 0."""
    by_place = {(one.partition, one.offset): one for one in final}
    found = {
        "aborted read": [_description(one) for one in read if (one.partition, one.offset) not in by_place],
        "changed": [_description(one) for one in read if by_place.get((one.partition, one.offset), one) != one],
        "unordered read": _unordered(read),
        "fractured read": _passed_over(by_place, read),
        "torn": _torn(by_place.values()),
    }
    return [f"{kind} x {len(each)}: {'; '.join(each[:SHOWN_PER_KIND])}" for kind, each in found.items() if each]


def _description(one: Output) -> str:
    return f"{one.value} of {one.transaction} at {one.partition}-{one.offset}"


def _unordered(read: Sequence[Output]) -> list[str]:
    newest: dict[int, int] = {}
    found = []
    for one in read:
        if one.offset <= newest.get(one.partition, -1):
            found.append(_description(one))
        newest[one.partition] = one.offset
    return found


def _passed_over(by_place: Mapping[tuple[int, int], Output], read: Sequence[Output]) -> list[str]:
    ends: dict[int, int] = {}
    for one in read:
        ends[one.partition] = max(one.offset, ends.get(one.partition, -1))
    seen = {(one.partition, one.offset) for one in read}
    return [
        _description(one)
        for place, one in sorted(by_place.items())
        if one.offset < ends.get(one.partition, -1) and place not in seen
    ]


def _torn(final: Iterable[Output]) -> list[str]:
    counts = Counter(one.transaction for one in final)
    return [f"{count} of {name}" for name, count in counts.items() if count != int(name.rpartition("/")[2])]
