"""Locks for the creation, deletion and truncation of partitions: one change of a partition at a time.

A change does not wait for changes of other partitions.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from engine.api import TopicIdPartition
from engine.claims import Claims


class Changes:
    """The partitions that are being changed, by directory name: a new topic may have the name of a deleted one."""

    def __init__(self) -> None:
        self._changing: Claims[tuple[str, int]] = Claims()
        self._is_exclusive = False

    @asynccontextmanager
    async def lock(self, partitions: Iterable[TopicIdPartition]) -> AsyncIterator[None]:
        """Hold the locks of these partitions within the block.

        All of them are taken at once: a waiting task holds none.
        """
        names = {(one.topic, one.partition) for one in partitions}
        while self._is_exclusive or not self._changing.are_free(names):
            await self._changing.released.park()
        self._changing.take(names)
        try:
            yield
        finally:
            self._changing.release(names)

    @asynccontextmanager
    async def lock_all(self) -> AsyncIterator[None]:
        """Hold the locks of all partitions within the block. While a task waits for this, no other change begins."""
        while self._is_exclusive:
            await self._changing.released.park()
        self._is_exclusive = True
        try:
            while self._changing:
                await self._changing.released.park()
            yield
        finally:
            self._is_exclusive = False
            self._changing.released.unpark_all()
