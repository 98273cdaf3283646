"""How much of what is there the next batch of a stream gets: a pure machine, as Spark's KafkaMicroBatchStream decides.

At most `maxOffsetsPerTrigger`, of each partition in proportion to what it has. At least `minOffsetsPerTrigger`, unless
`maxTriggerDelay` is over since the last batch that did not wait; the first one of a query waits for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spark_connectors.wire import TopicPartition

Positions = Mapping[TopicPartition, int]


class Delay:
    """Whether a batch waits until there is more. Times are those of one clock that never goes back."""

    def __init__(self, max_delay_s: float) -> None:
        self._max_delay_s = max_delay_s
        self._triggered_s: float | None = None

    def holds(self, starts: Positions, latest: Positions, min_offsets: int, now_s: float) -> bool:
        """`starts` has all partitions of `latest` that are known."""
        if self._triggered_s is not None and now_s - self._triggered_s < self._max_delay_s:
            available = sum(end - starts.get(place, 0) for place, end in latest.items())
            if available < min_offsets:
                return True
        self._triggered_s = now_s
        return False


def limited(starts: Positions, latest: Positions, max_offsets: int) -> dict[TopicPartition, int]:
    """Where each partition of `latest` is read up to, so that it is about `max_offsets` in all.

    A partition that has something gets something, so it may be more by as many as there are partitions. One that is
    not in `starts`, or has less than it had, keeps its end: planning finds out what is wrong with it.
    """
    sizes = {place: end - starts.get(place, end) for place, end in latest.items()}
    total = sum(size for size in sizes.values() if size > 0)
    found = dict(latest)
    for place, size in sizes.items():
        if size > 0:
            share = max_offsets * (size / total)
            count = math.ceil(share) if share < 1 else math.floor(share)
            found[place] = min(latest[place], starts[place] + count)
    return found
