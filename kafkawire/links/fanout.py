"""Small questions to other brokers, gathered: all that is for one broker at a moment goes in as few requests as can be.

A moment is what happens until the other tasks have had their turn: a round of a coordinator's log decides many
transactions at once, and each of them has partitions on many brokers.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from coordinator.api import Pending
    from kafkawire.links.links import Links
    from kafkawire.wire.message import Message

ItemT = TypeVar("ItemT")
TradedT = TypeVar("TradedT", contravariant=True)


class Trade(Protocol[TradedT]):
    """How one kind of question is put, and its answer told."""

    @property
    def purpose(self) -> str:
        """Of the links."""

    @property
    def version(self) -> int:
        """Of the request."""

    @property
    def items_max(self) -> int:
        """In one request."""

    def key_of(self, item: TradedT) -> Hashable:
        """What answers go by: of each there is one in a request."""

    def request(self, items: Sequence[TradedT]) -> Message:
        """That asks for all of these."""

    def told(self, items: Sequence[TradedT], reply: Pending[Message]) -> None:
        """The settled reply to it, to all who wait."""


class Fanout(Generic[ItemT]):
    """Life: `run` in a task."""

    def __init__(self, links: Links, trade: Trade[ItemT]) -> None:
        self._links = links
        self._trade = trade
        self._queued: dict[int, deque[ItemT]] = {}
        self._has_queued = trio.Event()

    def add(self, broker_id: int, item: ItemT) -> None:
        """Those for one broker are asked in the order in which they were added."""
        self._queued.setdefault(broker_id, deque()).append(item)
        self._has_queued.set()

    async def run(self) -> None:
        """For as long as the broker lives."""
        while True:
            await self._has_queued.wait()
            queued, self._queued, self._has_queued = self._queued, {}, trio.Event()
            for broker_id, items in queued.items():
                while items:
                    self._ask(broker_id, self._take(items))

    def _take(self, queued: deque[ItemT]) -> Sequence[ItemT]:
        """The oldest that go together, out of the queue: one at least."""
        trade = self._trade
        taken: dict[Hashable, ItemT] = {}
        while queued and len(taken) < trade.items_max and trade.key_of(queued[0]) not in taken:
            one = queued.popleft()
            taken[trade.key_of(one)] = one
        return list(taken.values())

    def _ask(self, broker_id: int, items: Sequence[ItemT]) -> None:
        trade = self._trade
        reply = self._links.call(broker_id, trade.request(items), trade.version, purpose=trade.purpose)
        if reply.is_settled:
            trade.told(items, reply)
        else:
            reply.call_when_settled(partial(trade.told, items, reply))
