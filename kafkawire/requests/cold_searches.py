"""Searches in segments that only the remote tier has. A request waits for them no longer than its timeout.

After Kafka's DelayedRemoteListOffsets. A request to a store cannot be cancelled. So a running search goes on after the
timeout, and its result is there for later requests. A search that has not begun is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

T = TypeVar("T")

SEARCHES_MAX: Final = 16  # at a time, of one broker; Kafka's remote.log.reader.threads is 10


class ColdSearches:
    """Cold searches of one broker. They run in `nursery`; `timeout_ms` returns the configured timeout."""

    def __init__(self, nursery: trio.Nursery, timeout_ms: Callable[[], int]) -> None:
        self._nursery = nursery
        self._timeout_ms = timeout_ms
        self._room = trio.CapacityLimiter(SEARCHES_MAX)

    async def perform(self, searches: Collection[Callable[[], Awaitable[T]]], timeout_ms: int = 0) -> list[T | None]:
        """Results of the searches, in their order; None for a search that was not in time.

        If `timeout_ms` is 0 or less, the configured timeout counts. Raises the first error of a search.
        """
        if not searches:
            return []
        batch: _Batch[T] = _Batch(len(searches))
        for number, search in enumerate(searches):
            self._nursery.start_soon(self._run, search, number, batch)
        try:
            with trio.move_on_after((timeout_ms if timeout_ms > 0 else self._timeout_ms()) / 1000):
                await batch.done.wait()
        finally:
            batch.is_over = True
        if batch.error is not None:
            raise batch.error
        return batch.found

    async def _run(self, search: Callable[[], Awaitable[T]], number: int, batch: _Batch[T]) -> None:
        async with self._room:
            if batch.is_over:
                return
            try:
                batch.note(number, await search())
            except Exception as error:  # unexpected ones, too: the waiting request fails with it
                batch.fail(error)


class _Batch(Generic[T]):
    """Searches of one request. It `is_over` when the request does not wait any more."""

    def __init__(self, count: int) -> None:
        self.found: list[T | None] = [None] * count
        self.error: Exception | None = None
        self.done = trio.Event()
        self.is_over = False
        self._left = count

    def note(self, number: int, found: T) -> None:
        if not self.is_over:
            self.found[number] = found
            self._left -= 1
            if not self._left:
                self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()
