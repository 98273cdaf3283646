"""A rate limit for uploads, over all partitions: bursts would disturb producers.

As in Kafka (RLMQuotaManager), all copiers share one quota, and a copier waits before its next segment if the quota is
exceeded. Unlike in Kafka, each upload is also spread over its share of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

UNLIMITED = 2**63 - 1
LOOK_S = 1.0  # interval at which a changed rate is noticed
SHORT_S = 0.001  # a shorter wait is skipped, and counts for the next copier


class CopyRate:
    """The rate limit; `max_bytes_per_s` may change at any time."""

    def __init__(self, max_bytes_per_s: Callable[[], int] = lambda: UNLIMITED) -> None:
        self._max_bytes_per_s = max_bytes_per_s
        self._queue = trio.Lock()
        self._ahead_bytes = 0.0  # uploaded ahead of the rate, as of `_seen_s`
        self._seen_s = 0.0

    async def turn(self, size_bytes: int) -> float:
        """Wait in order of arrival until `size_bytes` may be uploaded; returns the seconds over which to spread the
        upload."""
        async with self._queue:
            while (ahead_s := self._ahead_s()) > SHORT_S:  # noqa: ASYNC110 # no event signals a changed rate
                await trio.sleep(min(LOOK_S, ahead_s))
            self._ahead_bytes += size_bytes
        return size_bytes / self._max_bytes_per_s()

    def _ahead_s(self) -> float:
        now_s, rate = trio.current_time(), self._max_bytes_per_s()
        self._ahead_bytes = max(0.0, self._ahead_bytes - (now_s - self._seen_s) * rate)
        self._seen_s = now_s
        return self._ahead_bytes / rate
