"""The answer to a started request, awaited as a connection would come to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kafkawire.requests.started import Reply, StartedRequest


async def answer(started: StartedRequest) -> Reply:
    """The oldest request of its connection: it begins, becomes ready or late, and is answered."""
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
