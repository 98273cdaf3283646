"""Size of the next batch of a stream: a pure state machine, with the rules of Spark's KafkaMicroBatchStream.

At most `maxOffsetsPerTrigger`, from each partition in proportion to its size. At least `minOffsetsPerTrigger`, unless
`maxTriggerDelay` has passed since the last batch that did not wait. The first batch of a query does not wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spark_connectors.wire import TopicPartition

Positions = Mapping[TopicPartition, int]


class Delay:
    """Decision whether a batch waits for more records. Times are those of a monotonic clock."""

    def __init__(self, max_delay_s: float) -> None:
        self._max_delay_s = max_delay_s
        self._triggered_s: float | None = None

    def holds(self, starts: Positions, latest: Positions, min_offsets: int, now_s: float) -> bool:
        """Whether the batch waits. `starts` has all known partitions of `latest`."""
        if self._triggered_s is not None and now_s - self._triggered_s < self._max_delay_s:
            available = sum(end - starts.get(place, 0) for place, end in latest.items())
            if available < min_offsets:
                return True
        self._triggered_s = now_s
        return False


def limited(starts: Positions, latest: Positions, max_offsets: int) -> dict[TopicPartition, int]:
    """End offsets of a batch with about `max_offsets` in all.

    Each partition with new records gets at least one offset, so the sum can exceed the maximum by the number of
    partitions. A partition that is missing in `starts`, or has become shorter, keeps its end: the planner reports the
    problem.
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
