"""The clock of fetch sessions: those of clients that are gone are forgotten, whoever else fetches or does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from kafkawire.fetching.sessions import FetchSessionCache

CHECK_INTERVAL_S: Final = 60


async def expire_sessions(sessions: FetchSessionCache) -> None:
    """Until cancelled."""
    while True:
        await trio.sleep(CHECK_INTERVAL_S)
        sessions.expire()
