"""The one timer of all connections: each second it checks the deadlines of busy connections.

An idle connection is checked only when it may have been idle for too long: thousands of them cost nothing. The
deadlines are those of the connection's machine.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio

INTERVAL_S: Final = 1.0  # maximum delay of a deadline
CHECKS_PER_TURN: Final = 256  # before other tasks run


class WatchedConnection(Protocol):
    """A connection, as the reaper sees it."""

    idle_bucket: int  # set by the reaper: the second of the next check while idle
    is_watched: bool  # checked each second

    @property
    def has_ended(self) -> bool: ...
    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""

    @property
    def idle_until_s(self) -> float:
        """Earliest end of its idle time."""

    def check(self, now_s: float) -> None:
        """End the connection if a deadline has passed, or carry out what the deadline has decided."""


class Reaper:
    """Connections to check, and the times of their checks."""

    def __init__(self) -> None:
        self._busy: dict[WatchedConnection, None] = {}
        self._idle: dict[int, dict[WatchedConnection, None]] = {}  # by the second of the next check
        self._next_bucket = 0

    def watch(self, one: WatchedConnection) -> None:
        """Check a new or busy connection each second."""
        self._busy[one] = None
        one.is_watched = True

    def forget(self, one: WatchedConnection) -> None:
        """Forget a connection that has ended."""
        self._busy.pop(one, None)
        self._remove_idle(one)

    async def run(self) -> None:
        """Check connections until cancelled."""
        self._next_bucket = int(trio.current_time())
        while True:
            await trio.sleep(INTERVAL_S)
            now_s = trio.current_time()
            for number, one in enumerate([*self._busy, *self._due(now_s)], 1):
                self._check(one, now_s)
                if number % CHECKS_PER_TURN == 0:
                    await trio.lowlevel.checkpoint()

    def _due(self, now_s: float) -> list[WatchedConnection]:
        found: list[WatchedConnection] = []
        while self._next_bucket <= now_s:
            found += self._idle.pop(self._next_bucket, ())
            self._next_bucket += 1
        return found

    def _check(self, one: WatchedConnection, now_s: float) -> None:
        if not one.has_ended:  # during the checks of others
            one.check(now_s)
        self.forget(one)
        if one.has_ended:
            return
        if not one.is_idle:
            self.watch(one)
            return
        one.is_watched = False
        one.idle_bucket = max(int(one.idle_until_s) + 1, self._next_bucket)
        self._idle.setdefault(one.idle_bucket, {})[one] = None

    def _remove_idle(self, one: WatchedConnection) -> None:
        bucket = self._idle.get(one.idle_bucket)
        if bucket is not None:
            bucket.pop(one, None)
