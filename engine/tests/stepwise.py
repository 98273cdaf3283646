"""A trio loop that runs only during a job: the rules of a Hypothesis machine are no coroutines.

The loop is a guest on a queue of callbacks. Between two jobs no task runs and no time passes, so that runs with the
same jobs are equal.
"""

from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import TypeVar

import outcome
import trio
import trio.testing

from engine.tests.crash_states.life import schedule_by

T = TypeVar("T")
Job = Callable[[], Awaitable[object]]


class Stepwise:
    """Runs jobs one after the other in one task: a job may leave a context that another one has entered."""

    def __init__(self) -> None:
        schedule_by(0)
        self._callbacks: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._jobs, self._taken = trio.open_memory_channel[Job](1)
        self._answers: list[outcome.Outcome[object]] = []
        self._end: outcome.Outcome[None] | None = None
        trio.lowlevel.start_guest_run(
            self._serve,
            run_sync_soon_threadsafe=self._callbacks.put,
            done_callback=self._ended,
            host_uses_signal_set_wakeup_fd=True,
            clock=trio.testing.MockClock(autojump_threshold=0),
        )
        self._token: trio.lowlevel.TrioToken | None = None
        self.run(trio.lowlevel.checkpoint)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async for job in self._taken:
            self._answers.append(await outcome.acapture(job))

    def _ended(self, end: outcome.Outcome[None]) -> None:
        self._end = end

    def run(self, job: Callable[[], Awaitable[T]]) -> T:
        """Run a job; returns or raises as it does."""
        self._soon(lambda: self._jobs.send_nowait(job))
        while not self._answers and self._end is None:
            self._callbacks.get()()
        assert self._answers, f"the loop has ended: {self._end}"
        answer: T = self._answers.pop().unwrap()  # type: ignore[assignment]
        return answer

    def close(self) -> None:
        """End the loop."""
        self._soon(self._jobs.close)
        while self._end is None:
            self._callbacks.get()()
        self._end.unwrap()

    def _soon(self, action: Callable[[], object]) -> None:
        while self._token is None:
            self._callbacks.get()()
        self._token.run_sync_soon(action)
