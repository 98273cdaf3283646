"""Answers of a group, awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from coordinator.api import Future

T = TypeVar("T")


async def result_of(pending: Future[T]) -> T:
    """The result of an answer, once it is settled. Raises GroupError."""
    if not pending.is_settled:
        settled = trio.Event()
        pending.call_when_settled(settled.set)
        await settled.wait()
    return pending.result()
