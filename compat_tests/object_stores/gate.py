"""Where one thread waits until another has done something: killed a broker, say."""

from __future__ import annotations

import threading
from contextlib import suppress

import trio


class Gate:
    """A task on trio comes to it; it goes on when somebody on another thread says so."""

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
        """For who came and for who comes."""
        if self._token is None:
            self._is_open.set()
        else:
            with suppress(trio.RunFinishedError):
                trio.from_thread.run_sync(self._is_open.set, trio_token=self._token)
