"""What one can wait for: there is one question, whether it is settled, and one way to be told when it is.

An append of the engine's, an answer of the coordinator's, the replies made of them and requests on their way are all
of this kind; each says by a name of its own what it has come to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio


class Settleable(Protocol):
    """Open at first, or settled from the beginning; settled once."""

    @property
    def is_settled(self) -> bool: ...
    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when one that is open is settled; it neither waits nor raises."""


async def until_settled(one: Settleable) -> None:
    """Return when it is; the deadline is the caller's."""
    if not one.is_settled:
        settled = trio.Event()
        one.call_when_settled(settled.set)
        await settled.wait()
