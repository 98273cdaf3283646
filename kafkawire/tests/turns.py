"""Whether others have their turn while something long is done."""

from __future__ import annotations

import trio


class OtherTask:
    """Counts the turns it gets."""

    turns = 0

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1
