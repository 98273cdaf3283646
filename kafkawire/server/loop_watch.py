"""Watches the event loop: its lag behind due times, and the share of time in which it works.

A loop that is busy for long delays every client. The watch samples; it touches no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import trio

from engine.stats import Durations

SAMPLE_EVERY_S: Final = 0.1
WORK_OVER_S: Final = 10.0


class LoopWatch:
    """Counters of the event loop. `thread_time_s` returns the CPU time of its thread."""

    def __init__(self, thread_time_s: Callable[[], float] = time.thread_time) -> None:
        self._thread_time_s = thread_time_s
        self._period_start = (0.0, 0.0)
        self.lag = Durations()
        self.busy_s = 0.0
        self.idle_ratio = 1.0

    async def run(self) -> None:
        """Sample until cancelled."""
        self._period_start = (trio.current_time(), self._thread_time_s())
        due_s = trio.current_time()
        while True:
            due_s += SAMPLE_EVERY_S
            await trio.sleep_until(due_s)
            now_s = trio.current_time()
            self.lag.note(now_s - due_s)
            due_s = max(due_s, now_s)
            self._count_work(now_s)

    def _count_work(self, now_s: float) -> None:
        start_s, busy_s = self._period_start
        self.busy_s = self._thread_time_s()
        if now_s - start_s >= WORK_OVER_S:
            self.idle_ratio = max(0.0, 1.0 - (self.busy_s - busy_s) / (now_s - start_s))
            self._period_start = (now_s, self.busy_s)
