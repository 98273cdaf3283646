"""Loads of what only a remote tier has. They go on behind everybody's back: who asked may be answered, or gone.

Whoever asks for the same again meanwhile gets the load that is on its way. What it has brought stays here until it is
read, or nobody has come for it: in a small cache the next load would drop it, and readers of many partitions would load
for ever without reading. So no more is loaded at a time than the cache has room for; the others wait in a row.

After Kafka's DelayedRemoteFetch, with differences: there a request waits for all its remote partitions, whatever else
it has, and loads that have not begun when its time is over are given up. And there a store that cannot be reached is
UNKNOWN_SERVER_ERROR for the partition (RemoteLogReader), which librdkafka hands to the application; with
KAFKA_STORAGE_ERROR clients look for another leader. Nothing is lost and nobody else has it, so here the partition has
no records for the moment: every client asks again.
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

LOADS_MAX: Final = 256  # at a time, of one broker, with those that wait; whoever comes then asks again
LOAD_MAX_BYTES: Final = 4 * 1024 * 1024  # whatever a reader would take, unless a batch has more: it goes on from there
HELD_S: Final = 2.0  # until somebody comes who was answered without it
UNTOLD_MAX: Final = 256
UNTOLD_S: Final = 60.0  # after that an error may not be true any more


class ColdLoad:
    """One on its way. Over, `error` says why it did not work, if so; if not, its records are here until it is read."""

    __slots__ = ("_callbacks", "_was_read", "ended_s", "error", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self.ended_s = 0.0
        self.error: Exception | None = None
        self._callbacks: dict[Callable[[], None], None] = {}
        self._was_read = trio.Event()

    def call_when_over(self, callback: Callable[[], None]) -> None:
        """It neither waits nor raises."""
        self._callbacks[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Nobody is there any more whom it would reach."""
        self._callbacks.pop(callback, None)

    def was_read(self, callback: Callable[[], None]) -> None:
        """By whom it has called: its records need not stay for them."""
        self.forget(callback)
        if not self._callbacks:
            self.let_go()

    def let_go(self) -> None:
        """Nobody needs its records."""
        self._was_read.set()

    @property
    def is_waited_for(self) -> bool:
        """Whether there is anybody to call back."""
        return bool(self._callbacks)

    def end(self, error: Exception | None) -> None:
        """For whoever runs it."""
        self.is_over, self.ended_s, self.error = True, trio.current_time(), error
        for callback in self._callbacks:
            callback()

    async def reading(self) -> None:
        """Until it is read, or nobody has come for it."""
        with trio.move_on_after(HELD_S):
            await self._was_read.wait()


class ColdLoads:
    """Of one broker. `nursery`: where they go on; `max_wait_ms`: how long a fetch waits for them, if need be longer
    than it wants; `cache_size_bytes`: what may be held of the tier."""

    def __init__(self, nursery: trio.Nursery, max_wait_ms: Callable[[], int], cache_size_bytes: int) -> None:
        self._nursery = nursery
        self._max_wait_ms = max_wait_ms
        self._room = trio.CapacityLimiter(max(1, min(LOADS_MAX, cache_size_bytes // LOAD_MAX_BYTES)))
        self._underway: dict[Key, ColdLoad] = {}  # and those whose records are held
        self._untold: OrderedDict[Key, ColdLoad] = OrderedDict()  # what went wrong while nobody was there to hear it

    @property
    def max_wait_ms(self) -> int:
        """As configured now."""
        return self._max_wait_ms()

    def begin(self, log: PartitionLog, offset: int, size_bytes: int, isolation: Isolation) -> ColdLoad | None:
        """What a read at `offset` needs, unless that is on its way already, or was just found to be lost or wrong: then
        it is over. None: there are too many."""
        key = log, offset, isolation
        load = self._untold.pop(key, None)
        if load is not None and trio.current_time() - load.ended_s <= UNTOLD_S:
            return load
        load = self._underway.get(key)
        if load is not None and load.is_over:  # what it brought was not enough
            load.let_go()
            load = None
        if load is None and len(self._underway) < LOADS_MAX:
            load = self._underway[key] = ColdLoad()
            self._nursery.start_soon(self._run, key, min(size_bytes, LOAD_MAX_BYTES), load)
        return load

    async def _run(self, key: Key, size_bytes: int, load: ColdLoad) -> None:
        try:
            async with self._room:
                brought = await _brought(key, size_bytes)
                error = brought if isinstance(brought, Exception) else None
                if error is not None and not isinstance(error, TierUnreachable) and not load.is_waited_for:
                    self._untold[key] = load
                    if len(self._untold) > UNTOLD_MAX:
                        self._untold.popitem(last=False)
                load.end(error)
                if error is None and brought is not None:
                    await load.reading()
        finally:
            if self._underway.get(key) is load:
                del self._underway[key]


async def _brought(key: Key, size_bytes: int) -> object:
    """What holds it, or the error, also one that nobody expects: it is for whoever waits to fail.

    The error's traceback knows this frame, which therefore knows of no load: that would be a circle, and the collector
    seldom runs.
    """
    log, offset, isolation = key
    try:
        return await log.load(offset, size_bytes, isolation)
    except Exception as error:
        return error
