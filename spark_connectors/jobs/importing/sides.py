"""The two topics of an import, and the checks whether one can become the other: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from spark_connectors.jobs.importing.errors import ImportRefused

Row = Mapping[str, Any]


class Span(NamedTuple):
    """Start and end offset of a partition; for a source, the end is where reading has to stop."""

    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.start == self.end


@dataclass(frozen=True)
class Side:
    """A topic, with the spans of its partitions by number."""

    topic: str
    topic_id: bytes
    spans: Mapping[int, Span]


def check_partitions(source: Side, target: Side) -> None:
    """Raises ImportRefused if the target has too few partitions: a record stays in its partition, to keep the order of
    its key.
    """
    if len(source.spans) > len(target.spans):
        raise ImportRefused(
            f"{source.topic} has {len(source.spans)} partitions, {target.topic} has {len(target.spans)}: add some"
        )


def why_not_kept(source: Side, target: Side) -> str | None:
    """Reason why offsets cannot stay, by start and end offsets only; None: they may. The records are compared
    elsewhere.
    """
    for number, theirs in source.spans.items():
        ours, place = target.spans[number], f"{target.topic}-{number}"
        if ours.is_empty and ours.end > theirs.start:
            return f"{place} is empty, and has had offsets up to {ours.end} before"
        if ours.end > theirs.end:
            return f"{place} ends at offset {ours.end}, the source at {theirs.end}"
        if not ours.is_empty and ours.end < theirs.start:
            return f"{place} ends at offset {ours.end}, and the source begins at {theirs.start} by now"
    return None


def tail_of(source: Span, target: Span, offsets_max: int) -> Span:
    """The last offsets that the target has in common with the source."""
    start = max(source.start, target.start, target.end - offsets_max)
    return Span(min(start, target.end), target.end)


def check_own(place: str, theirs: Sequence[Row], ours: Sequence[Row], *, is_compacted: bool) -> int:
    """Number of rows that both sides have. Raises ImportRefused if the target has others.

    `is_compacted`: either side may lack rows, but common offsets have the same rows, and there is at least one.
    """
    wanted, found = ({row["offset"]: row for row in rows} for rows in (theirs, ours))
    common = wanted.keys() & found.keys()
    if is_compacted and found and not common:
        raise ImportRefused(f"{place} was not written by this import: no offset before its end is in the source, too")
    if is_compacted:
        wanted, found = ({at: rows[at] for at in common} for rows in (wanted, found))
    for at in sorted(wanted.keys() | found.keys()):
        if wanted.get(at) != found.get(at):
            raise ImportRefused(f"{place} was not written by this import: offset {at} is not as in the source")
    return len(common)
