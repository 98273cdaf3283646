"""Back-pressure of appends: the limit of a log dir's queue, the room of all queues, the hold of the server hub."""

from collections.abc import Sequence

import trio

from engine.errors import Overloaded

HANGS_AFTER_S = 2.0


class QueueBudget:
    """Limit of the bytes of appends to one log dir, queued or in flight; and the same limit again for appends that wait
    for a transaction verification.

    The two are counted apart: the coordinator's own appends, which end that wait, need room in the queue.
    """

    __slots__ = ("_full_since_s", "_lot", "_max_bytes", "used_bytes", "waiting_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lot = trio.lowlevel.ParkingLot()
        self._full_since_s: float | None = None  # without room since then, and nothing was written since
        self.used_bytes = 0
        self.waiting_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Take room for an append, else raise Overloaded. With an empty queue a batch of any size has room."""
        if self.used_bytes and self.used_bytes + size_bytes > self._max_bytes:
            raise Overloaded(f"{self.used_bytes} bytes are waiting to be written")
        self._add(size_bytes)

    def take_waiting(self, size_bytes: int) -> None:
        """Take room for an append that waits for its verification; raises as `take` does."""
        if self.waiting_bytes and self.waiting_bytes + size_bytes > self._max_bytes:
            raise Overloaded(f"{self.waiting_bytes} bytes are waiting for their transactions")
        self.waiting_bytes += size_bytes

    def queue_waiting(self, size_bytes: int) -> None:
        """Queue a waiting append, even if the queue is full: it was accepted before."""
        self.waiting_bytes -= size_bytes
        self._add(size_bytes)

    def give_waiting_back(self, size_bytes: int) -> None:
        self.waiting_bytes -= size_bytes

    def _add(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        if self._full_since_s is None and not self.has_room:
            self._full_since_s = trio.current_time()

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        if self._full_since_s is None:
            return
        if self.has_room:
            self._full_since_s = None
            self._lot.unpark_all()
        else:
            self._full_since_s = trio.current_time()

    @property
    def has_room(self) -> bool:
        """Whether at most half of the limit is used."""
        return self.used_bytes * 2 <= self._max_bytes

    @property
    def hangs(self) -> bool:
        """Whether there was no room, and nothing was written, for HANGS_AFTER_S: appends to other log dirs must not
        wait for this disk."""
        return self._full_since_s is not None and trio.current_time() - self._full_since_s > HANGS_AFTER_S

    async def wait_for_room(self) -> None:
        """Return when there is room, at once if there is now."""
        while not self.has_room:
            await self._lot.park()


class AppendRoom:
    """Back-pressure over all log dirs: true if appends are accepted.

    A full queue of a log dir that hangs does not count while another log dir has room.
    """

    __slots__ = ("_budgets",)

    def __init__(self, budgets: Sequence[QueueBudget]) -> None:
        self._budgets = budgets

    def __bool__(self) -> bool:
        return not self._full()

    def _full(self) -> list[QueueBudget]:
        """The full queues to wait for; empty: there is room."""
        full = [one for one in self._budgets if not one.has_room]
        if len(full) == len(self._budgets):
            return full
        return [one for one in full if not one.hangs]

    async def wait(self) -> None:
        """Return when there is room, at once if there is now."""
        while full := self._full():
            with trio.move_on_after(HANGS_AFTER_S):
                await full[0].wait_for_room()


class CommitBatchHold:
    """Flag of the server hub. `is_held`: the hub writes the queued appends itself soon; no task is woken for them."""

    __slots__ = ("is_held",)

    def __init__(self) -> None:
        self.is_held = False
