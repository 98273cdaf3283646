"""The one timer of all connections: each second it asks those that have something under way whether they are overdue.

One that has nothing under way is not asked before it may have been idle for too long: thousands of them cost nothing.
It refuses to know what overdue is; that is the connection's machine.
"""

from __future__ import annotations

from typing import Final, Protocol

import trio

INTERVAL_S: Final = 1.0  # how late a deadline may be noticed
CHECKS_PER_TURN: Final = 256  # before other tasks get theirs


class Mortal(Protocol):
    """A connection."""

    idle_bucket: int  # the reaper's own: when it is looked at although it has nothing under way
    is_watched: bool  # it is asked each second

    @property
    def has_ended(self) -> bool: ...
    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""

    @property
    def idle_until_s(self) -> float:
        """How long it may be, at least."""

    def check(self, now_s: float) -> None:
        """End it if a deadline has passed; go on with what a deadline has decided."""


class Reaper:
    """Which connections are to be asked, and when."""

    def __init__(self) -> None:
        self._busy: dict[Mortal, None] = {}
        self._idle: dict[int, dict[Mortal, None]] = {}  # by the second in which to look
        self._next_bucket = 0

    def watch(self, one: Mortal) -> None:
        """It has something under way, or is new."""
        self._busy[one] = None
        one.is_watched = True

    def forget(self, one: Mortal) -> None:
        """It has ended."""
        self._busy.pop(one, None)
        self._take_out(one)

    async def run(self) -> None:
        """Until cancelled."""
        self._next_bucket = int(trio.current_time())
        while True:
            await trio.sleep(INTERVAL_S)
            now_s = trio.current_time()
            for number, one in enumerate([*self._busy, *self._due(now_s)], 1):
                self._check(one, now_s)
                if number % CHECKS_PER_TURN == 0:
                    await trio.lowlevel.checkpoint()

    def _due(self, now_s: float) -> list[Mortal]:
        found: list[Mortal] = []
        while self._next_bucket <= now_s:
            found += self._idle.pop(self._next_bucket, ())
            self._next_bucket += 1
        return found

    def _check(self, one: Mortal, now_s: float) -> None:
        if not one.has_ended:  # while others were asked
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

    def _take_out(self, one: Mortal) -> None:
        bucket = self._idle.get(one.idle_bucket)
        if bucket is not None:
            bucket.pop(one, None)
