"""Whether offsets that were committed stay so, by what members of a group were told, and when.

Pure bookkeeping, as `history`: who asks behind an answer must not be told of less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 3


class Sight(NamedTuple):
    """What was committed, or was found to be, and between when and when. Times are of one clock."""

    kind: str
    partition: int
    offset: int
    asked_at_s: float
    answered_at_s: float


def check_committed(sights: Iterable[Sight]) -> list[str]:
    """The anomalies, a few with their number."""
    told = sorted(sights, key=lambda one: one.answered_at_s)
    greatest: dict[int, Sight] = {}  # of what was answered by now
    waiting = iter(told)
    following = next(waiting, None)
    found = []
    for one in sorted(told, key=lambda each: each.asked_at_s):
        while following is not None and following.answered_at_s <= one.asked_at_s:
            known = greatest.get(following.partition)
            if known is None or known.offset < following.offset:
                greatest[following.partition] = following
            following = next(waiting, None)
        before = greatest.get(one.partition)
        if before is not None and one.offset < before.offset:
            found.append(f"{one} behind {before}")
    return [f"committed offset went back x {len(found)}: {'; '.join(found[:SHOWN])}"] if found else []
