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

    from coordinator.shards.pending import Answer

EARLY_WAIT_S: Final = 2.0
EARLY_MAX: Final = 1_000

log = structlog.get_logger(__name__)


def loading(name: str) -> CoordinatorLoading:
    return CoordinatorLoading(f"{name} is being read")


class _Early(NamedTuple):
    until_s: float
    asker: Answer[object]
    perform: Callable[[], None]


class LoadWaiters:
    """The early requests of one shard, in their order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept: deque[_Early] = deque()
        self._came = trio.Event()

    def keep(self, asker: Answer[object], perform: Callable[[], None]) -> None:
        """Keep a request until the shard is read. If that takes too long, or too many wait, the answer is
        CoordinatorLoading."""
        if len(self._kept) >= EARLY_MAX:
            asker.settle(loading(self._name))
            return
        self._kept.append(_Early(trio.current_time() + EARLY_WAIT_S, asker, perform))
        self._came.set()

    def let_in(self) -> None:
        """Run the kept requests, as the shard is read. A bug that one of them meets does not concern the others."""
        while self._kept:
            one = self._kept.popleft()
            try:
                one.perform()
            except Exception:
                log.exception("coordinator request failed", partition=self._name)
                one.asker.settle(GroupError("coordinator request failed"))

    def send_away(self, error: GroupError) -> None:
        """Refuse the kept requests, as the shard will not be read here."""
        kept, self._kept = self._kept, deque()
        for one in kept:
            one.asker.settle(error)

    async def send_late_away(self) -> None:
        """Answer requests that have waited too long, for as long as the shard runs."""
        while True:
            await self._came.wait()
            self._came = trio.Event()
            while self._kept:
                await trio.sleep_until(self._kept[0].until_s)
                while self._kept and self._kept[0].until_s <= trio.current_time():
                    self._kept.popleft().asker.settle(loading(self._name))
