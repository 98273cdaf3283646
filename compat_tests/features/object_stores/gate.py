"""A gate where one thread waits for another, for instance until that has killed a broker."""

from __future__ import annotations

import threading
from contextlib import suppress

import trio


class Gate:
    """A gate where a task on trio waits until another thread opens it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._is_open = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None

    async def come(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._reached.set()
        await self._is_open.wait()

    def is_reached_within(self, seconds: float) -> bool:
        return self._reached.wait(seconds)

    def open(self) -> None:
        """Let waiting tasks and later ones pass."""
        if self._token is None:
            self._is_open.set()
        else:
            with suppress(trio.RunFinishedError):
                trio.from_thread.run_sync(self._is_open.set, trio_token=self._token)
