"""Things of which each is had by one at a time."""

from collections.abc import Collection
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Claims(Generic[T]):
    """What is had now. Who wants several has them all at once, or waits without any: nobody waits in a circle."""

    def __init__(self) -> None:
        self._had: set[T] = set()
        self.released = trio.lowlevel.ParkingLot()

    def __bool__(self) -> bool:
        return bool(self._had)

    def are_free(self, wanted: Collection[T]) -> bool:
        return self._had.isdisjoint(wanted)

    def take(self, wanted: Collection[T]) -> None:
        """They are free."""
        self._had.update(wanted)

    def release(self, taken: Collection[T]) -> None:
        """Whoever is parked looks again."""
        self._had.difference_update(taken)
        self.released.unpark_all()
