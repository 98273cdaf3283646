"""Background loads of records that only the remote tier has. The fetch that began a load may be answered, or its client
gone, before the load ends.

A second fetch of the same records shares the load that is under way. Loaded records stay in the cache until a fetch
reads them, or until `HELD_S` has passed: in a small cache the next load would evict them, and readers of many
partitions would load for ever without reading. So the loads at a time never exceed the room of the cache; the others
wait in a queue.

The design follows Kafka's DelayedRemoteFetch, with differences. In Kafka a request waits for all its remote partitions,
even if it has other records, and gives up the loads that have not begun when its time is over. And if the store cannot
be reached, Kafka answers UNKNOWN_SERVER_ERROR for the partition (RemoteLogReader), which librdkafka hands to the
application; with KAFKA_STORAGE_ERROR clients look for another leader. No record is lost and no other broker has them,
so here the partition has no records for the moment, and each client asks again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import trio

from engine.errors import TierUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.api import Isolation, PartitionLog

    Key = tuple[PartitionLog, int, Isolation]

LOADS_MAX: Final = 256  # loads of one broker that run or wait; a fetch beyond them gets no records and asks again
LOAD_MAX_BYTES: Final = 4 * 1024 * 1024  # of one load, unless a batch is larger; the next load goes on from there
HELD_S: Final = 2.0  # in which the client that was answered without the records asks again
UNREPORTED_MAX: Final = 256
UNREPORTED_S: Final = 60.0  # after which an error may not be true any more


class ColdLoad:
    """A load that is under way or over. If it is over, `error` is None or the failure; after a success its records stay
    in the cache until they are read."""

    __slots__ = ("_callbacks", "_read_event", "ended_s", "error", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self.ended_s = 0.0
        self.error: Exception | None = None
        self._callbacks: dict[Callable[[], None], None] = {}
        self._read_event = trio.Event()

    def call_when_over(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the load. The callback neither waits nor raises."""
        self._callbacks[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback, because its fetch is over."""
        self._callbacks.pop(callback, None)

    def note_read(self, callback: Callable[[], None]) -> None:
        """Note that the fetch with this callback has read the records. After the last one the records need not stay."""
        self.forget(callback)
        if not self._callbacks:
            self.release()

    def release(self) -> None:
        """Note that no fetch needs the records any more."""
        self._read_event.set()

    @property
    def is_waited_for(self) -> bool:
        """Whether a callback is registered."""
        return bool(self._callbacks)

    def end(self, error: Exception | None) -> None:
        """Finish the load and call the callbacks. Only the task that runs the load calls this."""
        self.is_over, self.ended_s, self.error = True, trio.current_time(), error
        for callback in self._callbacks:
            callback()

    async def wait_until_read(self) -> None:
        """Wait until the records are read, at most `HELD_S`."""
        with trio.move_on_after(HELD_S):
            await self._read_event.wait()


class ColdLoads:
    """The loads of one broker. `nursery`: for their tasks; `max_wait_ms`: how long a fetch waits for a load, even if
    its own limit is shorter; `cache_size_bytes`: the size of the tier's cache."""

    def __init__(self, nursery: trio.Nursery, max_wait_ms: Callable[[], int], cache_size_bytes: int) -> None:
        self._nursery = nursery
        self._max_wait_ms = max_wait_ms
        self._room = trio.CapacityLimiter(max(1, min(LOADS_MAX, cache_size_bytes // LOAD_MAX_BYTES)))
        self._underway: dict[Key, ColdLoad] = {}  # and those whose records are held
        self._unreported: OrderedDict[Key, ColdLoad] = OrderedDict()  # loads that failed when no fetch waited for them

    @property
    def max_wait_ms(self) -> int:
        """The present configuration, in milliseconds."""
        return self._max_wait_ms()

    def begin(self, log: PartitionLog, offset: int, size_bytes: int, isolation: Isolation) -> ColdLoad | None:
        """Begin or join the load of the records for a read at `offset`. If such a load has just failed, return that
        one, which is over. None: there are too many loads."""
        key = log, offset, isolation
        load = self._unreported.pop(key, None)
        if load is not None and trio.current_time() - load.ended_s <= UNREPORTED_S:
            return load
        load = self._underway.get(key)
        if load is not None and load.is_over:  # its records were not enough
            load.release()
            load = None
        if load is None and len(self._underway) < LOADS_MAX:
            load = self._underway[key] = ColdLoad()
            self._nursery.start_soon(self._run, key, min(size_bytes, LOAD_MAX_BYTES), load)
        return load

    async def _run(self, key: Key, size_bytes: int, load: ColdLoad) -> None:
        try:
            async with self._room:
                loaded = await _load_or_error(key, size_bytes)
                error = loaded if isinstance(loaded, Exception) else None
                if error is not None and not isinstance(error, TierUnreachable) and not load.is_waited_for:
                    self._unreported[key] = load
                    if len(self._unreported) > UNREPORTED_MAX:
                        self._unreported.popitem(last=False)
                load.end(error)
                if error is None and loaded is not None:
                    await load.wait_until_read()
        finally:
            if self._underway.get(key) is load:
                del self._underway[key]


async def _load_or_error(key: Key, size_bytes: int) -> object:
    """The loaded object that holds the records, or the error, even an unexpected one: it must reach the waiting
    fetches.

    The error's traceback refers to this frame. So this frame must not refer to the load: they would form a cycle, and
    the garbage collector seldom runs.
    """
    log, offset, isolation = key
    try:
        return await log.load(offset, size_bytes, isolation)
    except Exception as error:
        return error
