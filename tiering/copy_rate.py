"""How much is copied in a second, of all that is copied: what comes in bursts, is in the way of who produces.

As in Kafka (RLMQuotaManager) all copiers share one quota, and whoever exceeded it waits before the next segment. Unlike
there, a copy is also spread over the time that is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

UNLIMITED = 2**63 - 1
LOOK_S = 1.0  # until it is seen that the rate is another one
SHORT_S = 0.001  # is not waited for; it counts for whoever comes next


class CopyRate:
    """`max_bytes_per_s` may change at any time."""

    def __init__(self, max_bytes_per_s: Callable[[], int] = lambda: UNLIMITED) -> None:
        self._max_bytes_per_s = max_bytes_per_s
        self._queue = trio.Lock()
        self._ahead_bytes = 0.0  # of what the rate allows, as of `_seen_s`
        self._seen_s = 0.0

    async def turn(self, size_bytes: int) -> float:
        """Wait until so much may be copied, in the order in which they come; over how many seconds it should be."""
        async with self._queue:
            while (ahead_s := self._ahead_s()) > SHORT_S:  # noqa: ASYNC110 # nobody tells when a rate changes
                await trio.sleep(min(LOOK_S, ahead_s))
            self._ahead_bytes += size_bytes
        return size_bytes / self._max_bytes_per_s()

    def _ahead_s(self) -> float:
        now_s, rate = trio.current_time(), self._max_bytes_per_s()
        self._ahead_bytes = max(0.0, self._ahead_bytes - (now_s - self._seen_s) * rate)
        self._seen_s = now_s
        return self._ahead_bytes / rate
