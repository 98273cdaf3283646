"""Exclusive claims: a key has at most one owner at a time."""

from collections.abc import Collection
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Claims(Generic[T]):
    """The keys that are claimed now.

    A task claims several keys all at once, or waits on `released` without any, so that no deadlock is possible.
    """

    def __init__(self) -> None:
        self._had: set[T] = set()
        self.released = trio.lowlevel.ParkingLot()

    def __bool__(self) -> bool:
        return bool(self._had)

    def are_free(self, wanted: Collection[T]) -> bool:
        return self._had.isdisjoint(wanted)

    def take(self, wanted: Collection[T]) -> None:
        """Claim these keys, which must be free."""
        self._had.update(wanted)

    def release(self, taken: Collection[T]) -> None:
        """Give these keys up, and wake all tasks that wait on `released`."""
        self._had.difference_update(taken)
        self.released.unpark_all()
