"""Replication quotas: bytes a second that throttled replicas copy from and to this broker (KIP-73).

Only replicas that are not in sync are delayed, and only those that the topic names; traffic of all named replicas
counts. The rate is measured like Kafka's SimpleRate: over some samples of a length, or since the first of them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from engine.log_config import EVERY_REPLICA

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.log_config import ReplicaNames

NO_LIMIT: Final = 2**63 - 1


class Throttle:
    """Quota of one broker in one direction. `now_ms` is a monotonic clock."""

    __slots__ = ("_broker_id", "_lasts_ms", "_now_ms", "_sample_ms", "_samples", "limit_bytes_per_s")

    def __init__(self, broker_id: int, now_ms: Callable[[], int], *, samples: int, sample_ms: int) -> None:
        """`samples`, `sample_ms`: replication.quota.window.num, .size.seconds."""
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._sample_ms = sample_ms
        self._lasts_ms = samples * sample_ms
        self._samples: deque[tuple[int, int]] = deque(maxlen=samples)  # start in ms, and bytes
        self.limit_bytes_per_s = NO_LIMIT

    def covers(self, named: ReplicaNames, partition: int) -> bool:
        """Whether the topic names this broker's replica of the partition."""
        return bool(named) and (EVERY_REPLICA in named or (partition, self._broker_id) in named)

    def must_wait(self, named: ReplicaNames, partition: int) -> bool:
        """Whether the replica, which is not in sync, has to wait before it copies more."""
        return self.covers(named, partition) and self.is_exceeded

    def count_copied(self, named: ReplicaNames, partition: int, size_bytes: int) -> None:
        """Count copied bytes, if the replica is covered."""
        if self.covers(named, partition):
            self.note(size_bytes)

    def note(self, size_bytes: int) -> None:
        """Count copied bytes of covered replicas."""
        if not size_bytes:
            return
        now_ms, samples = self._now_ms(), self._samples
        self._forget(now_ms)
        if not samples or samples[-1][0] + self._sample_ms <= now_ms:
            samples.append((now_ms, 0))
        samples[-1] = samples[-1][0], samples[-1][1] + size_bytes

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is beyond the limit."""
        return self.limit_bytes_per_s != NO_LIMIT and self.bytes_per_s > self.limit_bytes_per_s

    @property
    def bytes_per_s(self) -> float:
        """The present rate in bytes a second."""
        now_ms = self._now_ms()
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], self._sample_ms)
        return sum(size for _, size in self._samples) * 1000 / elapsed_ms

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and samples[0][0] + self._lasts_ms <= now_ms:
            samples.popleft()


class Throttles:
    """Quotas of one broker: for fetches of its followers, and for its own fetches as a follower."""

    def __init__(self, broker_id: int, now_ms: Callable[[], int], *, samples: int, sample_ms: int) -> None:
        self.leader = Throttle(broker_id, now_ms, samples=samples, sample_ms=sample_ms)
        self.follower = Throttle(broker_id, now_ms, samples=samples, sample_ms=sample_ms)
