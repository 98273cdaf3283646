"""Long polls: who is told when a partition has something new.

A waiter watches any number of partitions; a partition that changes puts itself on the waiter's list, and forgets the
waiter until it has taken the list. So a change costs one step per waiter that has looked since the last one, nothing
for those who are away, and a wake-up one step per partition that changed, however many are watched. Nothing here
carries data or knows offsets: whoever wakes looks again.
"""

import trio

from engine.api import PartitionLog


class Watched:
    """The part of a partition that knows who is to be told of its next change."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}  # a dict keeps the order: simulations must repeat

    def announce_change(self) -> None:
        """Tell every waiter to look again, once until it does."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.note(self)


class Waiter:
    """One long poll or one fetch session (see `engine.api.ReadyWaiter`)."""

    __slots__ = ("_changed", "_wake_up", "_watched")

    def __init__(self) -> None:
        self._watched: dict[Watched, PartitionLog] = {}
        self._changed: dict[Watched, None] = {}
        self._wake_up: trio.Event | None = None

    def watch(self, log: PartitionLog) -> None:
        assert isinstance(log, Watched)
        self._watched[log] = log
        log._waiters[self] = None

    def unwatch(self, log: PartitionLog) -> None:
        assert isinstance(log, Watched)
        self._watched.pop(log, None)
        self._changed.pop(log, None)
        log._waiters.pop(self, None)

    def note(self, log: Watched) -> None:
        """`log` changed; called by it, once until the change is taken."""
        self._changed[log] = None
        if self._wake_up is not None:
            self._wake_up.set()

    def take_changed(self) -> list[PartitionLog]:
        changed = [self._watched[log] for log in self._changed]
        for log in self._changed:
            log._waiters[self] = None
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
        for log in self._watched:
            log._waiters.pop(self, None)
        self._watched.clear()
        self._changed.clear()
