"""Wait for a future.

Appends of the engine, replies of the coordinators, responses made of them and requests in progress are futures. Each
has its own name for its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from engine.api import AnyFuture


async def until_settled(future: AnyFuture) -> None:
    """Wait until the future is settled; the deadline is the caller's."""
    if not future.is_settled:
        settled = trio.Event()
        future.call_when_settled(settled.set)
        await settled.wait()
