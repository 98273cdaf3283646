"""Requests that come while a shard is read: they wait a moment for it (RULES C7).

Kafka's coordinator answers them at once that it is loading, and clients try again: librdkafka three times within half a
second, and then a commit is given up. To read a log takes Kafka less than that, and this broker longer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from coordinator.errors import CoordinatorLoading, GroupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.futures import SettableFuture

EARLY_WAIT_S: Final = 2.0
EARLY_MAX: Final = 1_000

log = structlog.get_logger(__name__)


def loading(name: str) -> CoordinatorLoading:
    return CoordinatorLoading(f"{name} is being read")


class _Waiter(NamedTuple):
    until_s: float
    future: SettableFuture[object]
    perform: Callable[[], None]


class LoadWaiters:
    """The early requests of one shard, in their order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[_Waiter] = deque()
        self._arrived = trio.Event()

    def add(self, future: SettableFuture[object], perform: Callable[[], None]) -> None:
        """Keep a request until the shard is read. If that takes too long, or too many wait, the answer is
        CoordinatorLoading."""
        if len(self._waiting) >= EARLY_MAX:
            future.settle(loading(self._name))
            return
        self._waiting.append(_Waiter(trio.current_time() + EARLY_WAIT_S, future, perform))
        self._arrived.set()

    def release(self) -> None:
        """Run the kept requests, as the shard is read. A bug that one of them meets does not concern the others."""
        while self._waiting:
            one = self._waiting.popleft()
            try:
                one.perform()
            except Exception:
                log.exception("coordinator request failed", partition=self._name)
                one.future.settle(GroupError("coordinator request failed"))

    def refuse(self, error: GroupError) -> None:
        """Refuse the kept requests, as the shard will not be read here."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.future.settle(error)

    async def refuse_late(self) -> None:
        """Answer requests that have waited too long, for as long as the shard runs."""
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            while self._waiting:
                await trio.sleep_until(self._waiting[0].until_s)
                while self._waiting and self._waiting[0].until_s <= trio.current_time():
                    self._waiting.popleft().future.settle(loading(self._name))
