"""Expiry of fetch sessions of clients that are gone, at intervals, even if no other client fetches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from kafkawire.fetching.sessions import FetchSessionCache

CHECK_INTERVAL_S: Final = 60


async def expire_sessions(sessions: FetchSessionCache) -> None:
    """Expire sessions until cancelled."""
    while True:
        await trio.sleep(CHECK_INTERVAL_S)
        sessions.expire()
