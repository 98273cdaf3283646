"""Confirmation by the metadata of reads that the followers of a partition do not confirm in time.

A Fetch of each possible successor confirms a read (`engine.partitions.confirmed_reads`). A follower with a slow disk
sends none for a while, a replica that is down sends none at all, and a leader may have no successor. The metadata store
also tells which broker leads: a write through its quorum precedes the answer. A read that is not confirmed either way
within `TIMEOUT_MS` fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from coordinator.errors import MetadataUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.waiting_reads import WaitingReads

FOLLOWERS_FIRST_S: Final = 0.2  # a follower confirms within a round trip, unless its disk is slow
RETRY_S: Final = 0.5
PAUSE_S: Final = 0.01  # between two writes to the metadata store: reads that come meanwhile share the next write
TIMEOUT_MS: Final = 10_000  # two syncs of a disk that takes almost five seconds for each


class MetadataConfirmation:
    """Confirms the waiting reads of one broker; the caller runs `run` in a task. `follow_newest`: see
    `coordinator.cluster_manager.ClusterManager`."""

    def __init__(self, waiting: WaitingReads, follow_newest: Callable[[], Awaitable[None]]) -> None:
        self._clock = waiting.clock
        self._waiting = waiting
        self._follow_newest = follow_newest
        self._wanted = trio.Event()
        self._has_waiting = trio.Event()
        waiting.on_wait = self._want

    def _want(self) -> None:
        self._wanted.set()
        self._has_waiting.set()

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up)
            while True:
                await self._wanted.wait()
                if not self._waiting.needs_metadata:
                    await trio.sleep(FOLLOWERS_FIRST_S)
                self._wanted = trio.Event()
                if self._waiting:
                    await self._ask_metadata()

    async def _ask_metadata(self) -> None:
        as_of = self._clock.next()
        try:
            await self._follow_newest()
        except MetadataUnavailable:
            await trio.sleep(RETRY_S)
            self._wanted.set()
        else:
            self._waiting.confirm(as_of)
            await trio.sleep(PAUSE_S)

    async def _give_up(self) -> None:
        while True:
            await self._has_waiting.wait()
            await trio.sleep(RETRY_S)
            self._waiting.expire(self._clock.boot_ms() - TIMEOUT_MS)
            if not self._waiting:
                self._has_waiting = trio.Event()
