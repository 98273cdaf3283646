"""Who may make, delete or shorten which partitions: of each, one at a time, and nobody waits for another's."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import trio

from engine.api import TopicPartition


class Changes:
    """Partitions by name, which a directory is called by: another topic may come to have the name of one deleted."""

    def __init__(self) -> None:
        self._changing: set[tuple[str, int]] = set()
        self._is_exclusive = False
        self._ended = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def of(self, partitions: Iterable[TopicPartition]) -> AsyncIterator[None]:
        """Nobody else changes one of these within the block. All are had at once: nobody waits with some of them."""
        names = {(one.topic, one.partition) for one in partitions}
        while self._is_exclusive or not self._changing.isdisjoint(names):
            await self._ended.park()
        self._changing |= names
        try:
            yield
        finally:
            self._changing -= names
            self._ended.unpark_all()

    @asynccontextmanager
    async def of_all(self) -> AsyncIterator[None]:
        """Nobody else changes anything within the block, or begins to once this is asked for."""
        while self._is_exclusive:
            await self._ended.park()
        self._is_exclusive = True
        try:
            while self._changing:
                await self._ended.park()
            yield
        finally:
            self._is_exclusive = False
            self._ended.unpark_all()
