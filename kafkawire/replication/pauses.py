"""The time that a follower waits before it asks a leader again that has refused. Pure.

Kafka waits for replica.fetch.backoff.ms each time. But a new leader may learn of its role a moment later than its
followers, and until they ask again no append is acknowledged. So the first pause is short, and each next one twice as
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.api import NO_EPOCH

if TYPE_CHECKING:
    from engine.api import TopicIdPartition

FIRST_MS: Final = 10


class Pauses:
    """The pauses of all partitions that are fetched from one leader. `backoff_ms`: the longest pause."""

    def __init__(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._last: dict[TopicIdPartition, tuple[int, int]] = {}  # an epoch, and the last pause in it

    def next_ms(self, partition: TopicIdPartition, epoch: int) -> int:
        """The pause in milliseconds after the leader refused the partition in that leader epoch."""
        last_epoch, last_ms = self._last.get(partition, (NO_EPOCH, 0))
        pause_ms = min(2 * last_ms if epoch == last_epoch else FIRST_MS, self._backoff_ms)
        self._last[partition] = epoch, pause_ms
        return pause_ms

    def forget(self, partition: TopicIdPartition) -> None:
        """Forget a partition that is not fetched from this leader any more."""
        self._last.pop(partition, None)
