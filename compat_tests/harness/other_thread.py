"""Questions to code that runs in a trio loop of another thread."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def ask(token: trio.lowlevel.TrioToken | None, question: Callable[[], T]) -> T:
    """Call `question` in the loop of the token while it runs; before and after that, in this thread."""
    with suppress(trio.RunFinishedError):
        if token is not None:
            return trio.from_thread.run_sync(question, trio_token=token)
    return question()
