"""How many requests may start, and connections end, before the event loop turns to others.

Everything that is ready runs in one turn of the loop: fifty connections with five requests each would start them all
while a timer, a round of the engine or a reply waits; a hundred connections that a peer closes at once would all end.
What is above the limit starts or ends in the next turns, in the order in which it came and from one task. What starts
in one turn still makes one round of the engine.

It knows of no time: a turn is what lies between two looks at the sockets, so a simulation does the same each time.
"""

from __future__ import annotations

from typing import Protocol

import trio

STARTS_PER_TURN = 128
ENDS_PER_TURN = 8  # a connection takes its tasks with it: some 200 us


class Starter(Protocol):
    """A connection."""

    def start_now(self) -> int:
        """Start what may start; returns how many requests that were. It may have ended."""


class Turnstile(trio.abc.Instrument):
    """Counts what is started; `serve` starts what came late."""

    def __init__(self) -> None:
        self._left = STARTS_PER_TURN
        self._ends_left = ENDS_PER_TURN
        self._late: dict[Starter, None] = {}
        self._ending = trio.lowlevel.ParkingLot()
        self._parked = trio.lowlevel.ParkingLot()

    def before_io_wait(self, timeout: float) -> None:
        self._left = STARTS_PER_TURN
        self._ends_left = ENDS_PER_TURN

    def start(self, one: Starter) -> None:
        """Now or soon."""
        if self._left > 0 and not self._late:
            self._left -= one.start_now()
            return
        self._late[one] = None
        if self._parked:
            self._parked.unpark_all()

    async def wait_to_end(self) -> None:
        """For a connection whose peer has left: at once, or in one of the next turns."""
        if self._ends_left > 0 and not self._ending:
            self._ends_left -= 1
            return
        if self._parked:
            self._parked.unpark_all()
        await self._ending.park()

    async def serve(self) -> None:
        """Until cancelled."""
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                while not self._late and not self._ending:
                    await self._parked.park()
                ending = self._ending.unpark(count=max(0, self._ends_left))
                self._ends_left -= len(ending)
                while self._late and self._left > 0:
                    one = next(iter(self._late))
                    del self._late[one]
                    self._left -= one.start_now()
                await trio.lowlevel.checkpoint()
        finally:
            trio.lowlevel.remove_instrument(self)
