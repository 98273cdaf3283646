"""A task that counts its turns, to show that others run during long work."""

from __future__ import annotations

import trio


class OtherTask:
    """A task that counts its turns."""

    turns = 0

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1
