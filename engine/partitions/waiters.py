"""Long polls: waiters that are woken when a partition changes.

A waiter watches any number of partitions. A partition that changes puts itself on the waiter's list, and forgets the
waiter until the waiter has taken the list. So a change costs one step for each waiter that has taken its list since the
last change. A wake-up costs one step for each changed partition, however many are watched. No data and no offsets are
passed: a woken waiter reads again.
"""

from typing import Protocol, cast

import trio

from engine.api import PartitionLog


class Changes:
    """The changes of one partition, for the waiters that watch it."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}  # a dict keeps the order: simulations must repeat

    def __len__(self) -> int:
        """The number of waiters that the next change is told to."""
        return len(self._waiters)

    def announce(self) -> None:
        """Note the change in every waiter that has taken its list since the last change."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.note(self)

    def tell(self, waiter: "Waiter") -> None:
        """Tell the waiter of the next change."""
        self._waiters[waiter] = None

    def forget(self, waiter: "Waiter") -> None:
        self._waiters.pop(waiter, None)


class WatchedLog(PartitionLog, Protocol):
    """A partition as its waiters see it."""

    @property
    def changes(self) -> Changes: ...


class Waiter:
    """Waiter of a long poll or a fetch session (see `engine.api.ReadyWaiter`)."""

    __slots__ = ("_changed", "_wake_up", "_watched")

    def __init__(self) -> None:
        self._watched: dict[Changes, PartitionLog] = {}
        self._changed: dict[Changes, None] = {}
        self._wake_up: trio.Event | None = None

    def watch(self, log: PartitionLog) -> None:
        changes = cast("WatchedLog", log).changes
        self._watched[changes] = log
        changes.tell(self)

    def unwatch(self, log: PartitionLog) -> None:
        changes = cast("WatchedLog", log).changes
        self._watched.pop(changes, None)
        self._changed.pop(changes, None)
        changes.forget(self)

    def note(self, changes: Changes) -> None:
        """Note that a partition has changed; called once until the change is taken."""
        self._changed[changes] = None
        if self._wake_up is not None:
            self._wake_up.set()

    def take_changed(self) -> list[PartitionLog]:
        changed = [self._watched[changes] for changes in self._changed]
        for changes in self._changed:
            changes.tell(self)
        self._changed.clear()
        return changed

    async def wait(self) -> None:
        if self._changed:
            return
        self._wake_up = trio.Event()
        try:
            await self._wake_up.wait()
        finally:
            self._wake_up = None

    def close(self) -> None:
        for changes in self._watched:
            changes.forget(self)
        self._watched.clear()
        self._changed.clear()
