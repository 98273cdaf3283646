"""The answer to a started request, awaited as a connection receives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kafkawire.requests.started import Reply, StartedRequest


async def answer(started: StartedRequest) -> Reply:
    """Await the reply to the oldest request of its connection: it begins, is ready or reaches its deadline, and is
    answered."""
    if started.two_stage and not started.is_settled:
        ready = trio.Event()
        started.call_when_settled(ready.set)
        with trio.move_on_at(started.deadline_s):
            await ready.wait()
    elif not started.two_stage:
        work = started.begin()
        if work is not None:
            await work
    return started.reply()
