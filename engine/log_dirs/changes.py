"""Who may make, delete or shorten which partitions: of each, one at a time, and nobody waits for another's."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from engine.api import TopicPartition
from engine.claims import Claims


class Changes:
    """Partitions by name, which a directory is called by: another topic may come to have the name of one deleted."""

    def __init__(self) -> None:
        self._changing: Claims[tuple[str, int]] = Claims()
        self._is_exclusive = False

    @asynccontextmanager
    async def of(self, partitions: Iterable[TopicPartition]) -> AsyncIterator[None]:
        """Nobody else changes one of these within the block. All are had at once: nobody waits with some of them."""
        names = {(one.topic, one.partition) for one in partitions}
        while self._is_exclusive or not self._changing.are_free(names):
            await self._changing.released.park()
        self._changing.take(names)
        try:
            yield
        finally:
            self._changing.release(names)

    @asynccontextmanager
    async def of_all(self) -> AsyncIterator[None]:
        """Nobody else changes anything within the block, or begins to once this is asked for."""
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
