"""Failed loads from the tier."""

from __future__ import annotations

import gc
import weakref
from typing import cast

import trio

from engine.api import Isolation, PartitionLog
from engine.errors import TierUnreachable
from kafkawire.fetching.cold_loads import LOAD_MAX_BYTES, ColdLoads


class AwayLog:
    """A fake log whose tier does not answer."""

    async def load(self, offset: int, size_bytes: int, isolation: Isolation) -> object:
        raise TierUnreachable(f"{size_bytes} bytes at {offset}, {isolation}")


async def test_a_load_that_failed_leaves_nothing_to_the_collector() -> None:
    """The garbage collector seldom runs in a broker."""

    class Caller:
        def __call__(self) -> None:
            """The callback at the end of the load."""

    caller = Caller()
    kept = weakref.ref(caller)
    gc.disable()
    try:
        async with trio.open_nursery() as nursery:
            loads = ColdLoads(nursery, lambda: 1000, LOAD_MAX_BYTES)
            load = loads.begin(cast("PartitionLog", AwayLog()), 7, 100, Isolation.READ_COMMITTED)
            assert load is not None
            load.call_when_over(caller)
        assert isinstance(load.error, TierUnreachable)
        del load, caller
        assert kept() is None
    finally:
        gc.enable()
