"""The protocol of futures: whether one is settled, and a callback for it.

Appends of the engine, answers of the coordinators, replies made of them and requests in progress are futures. Each has
its own name for its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio


class Settleable(Protocol):
    """A future: open or settled from the beginning, and settled once."""

    @property
    def is_settled(self) -> bool: ...
    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when an open future is settled. The callback neither waits nor raises."""


async def until_settled(one: Settleable) -> None:
    """Wait until the future is settled; the deadline is the caller's."""
    if not one.is_settled:
        settled = trio.Event()
        one.call_when_settled(settled.set)
        await settled.wait()
