"""Long polls: waiters that are woken when a partition changes.

A waiter watches any number of partitions. A partition that changes puts itself on the waiter's list, and forgets the
waiter until the waiter has taken the list. So a change costs one step for each waiter that has taken its list since the
last change. A wake-up costs one step for each changed partition, however many are watched. No data and no offsets are
passed: a woken waiter reads again.
"""

import trio

from engine.api import PartitionLog


class Watched:
    """The part of a partition that knows the waiters of its next change."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}  # a dict keeps the order: simulations must repeat

    def announce_change(self) -> None:
        """Note the change in every waiter that has taken its list since the last change."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.note(self)


class Waiter:
    """Waiter of a long poll or a fetch session (see `engine.api.ReadyWaiter`)."""

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
        """Note that `log` has changed; the partition calls it once until the change is taken."""
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
