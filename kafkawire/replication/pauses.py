"""How long a follower waits before it asks a leader again that has refused. Pure.

Kafka waits for replica.fetch.backoff.ms each time. But a leader may learn a moment later than its followers who it is,
and until they ask again nothing is acknowledged: so at first it is a moment, then twice as long each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.api import NO_EPOCH

if TYPE_CHECKING:
    from engine.api import TopicPartition

FIRST_MS: Final = 10


class Pauses:
    """Of all partitions that one leader is asked for. `backoff_ms`: the longest of them."""

    def __init__(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._last: dict[TopicPartition, tuple[int, int]] = {}  # an epoch, and the last pause in it

    def next_ms(self, partition: TopicPartition, epoch: int) -> int:
        """It was refused in that epoch of its leader."""
        last_epoch, last_ms = self._last.get(partition, (NO_EPOCH, 0))
        pause_ms = min(2 * last_ms if epoch == last_epoch else FIRST_MS, self._backoff_ms)
        self._last[partition] = epoch, pause_ms
        return pause_ms

    def forget(self, partition: TopicPartition) -> None:
        """It is not asked for any more."""
        self._last.pop(partition, None)
