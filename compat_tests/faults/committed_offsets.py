"""Check that committed offsets stay committed, from the answers that members of a group got, and their times.

Pure bookkeeping, as `history`: a question that is asked after an answer must not get a smaller offset than that answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN = 3


class Sight(NamedTuple):
    """An answer about one partition: an offset was committed, or was found to be committed (`kind`).

    The times of the question and of the answer are in seconds, by one clock.
    """

    kind: str
    partition: int
    offset: int
    asked_at_s: float
    answered_at_s: float


def check_committed(sights: Iterable[Sight]) -> list[str]:
    """The anomalies, a few with their number."""
    by_answer = sorted(sights, key=lambda one: one.answered_at_s)
    greatest: dict[int, Sight] = {}  # by partition, of the answers so far
    waiting = iter(by_answer)
    following = next(waiting, None)
    found = []
    for one in sorted(by_answer, key=lambda each: each.asked_at_s):
        while following is not None and following.answered_at_s <= one.asked_at_s:
            known = greatest.get(following.partition)
            if known is None or known.offset < following.offset:
                greatest[following.partition] = following
            following = next(waiting, None)
        before = greatest.get(one.partition)
        if before is not None and one.offset < before.offset:
            found.append(f"{one} behind {before}")
    return [f"committed offset went back x {len(found)}: {'; '.join(found[:SHOWN])}"] if found else []
