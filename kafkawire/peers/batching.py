"""Gathering of small requests to other brokers: all items for one broker at one moment go in as few requests as
possible.

A moment lasts until other tasks have had their turn. A commit batch of a coordinator's log decides many transactions at
once, and each of them has partitions on many brokers.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from coordinator.api import Future
    from kafkawire.peers.peers import Peers
    from kafkawire.wire.message import Message

ItemT = TypeVar("ItemT")
BatchedT = TypeVar("BatchedT", contravariant=True)


class BatchKind(Protocol[BatchedT]):
    """The requests and replies of one kind of item."""

    @property
    def purpose(self) -> str:
        """The purpose of the connections."""

    @property
    def version(self) -> int:
        """The API version of the request."""

    @property
    def items_max(self) -> int:
        """The most items in one request."""

    def key_of(self, item: BatchedT) -> Hashable:
        """The key by which a reply names the item. One request has each key once."""

    def request(self, items: Sequence[BatchedT]) -> Message:
        """The request for all of these items."""

    def settle_items(self, items: Sequence[BatchedT], reply: Future[Message]) -> None:
        """Settle the items with the settled reply."""


class RequestBatcher(Generic[ItemT]):
    """Gathers items of one kind; the caller runs `run` in a task."""

    def __init__(self, links: Peers, kind: BatchKind[ItemT]) -> None:
        self._links = links
        self._kind = kind
        self._queued: dict[int, deque[ItemT]] = {}
        self._has_queued = trio.Event()

    def add(self, broker_id: int, item: ItemT) -> None:
        """Queue an item. The items for one broker are sent in the order in which they were added."""
        self._queued.setdefault(broker_id, deque()).append(item)
        self._has_queued.set()

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        while True:
            await self._has_queued.wait()
            queued, self._queued, self._has_queued = self._queued, {}, trio.Event()
            for broker_id, items in queued.items():
                while items:
                    self._send(broker_id, self._take(items))

    def _take(self, queued: deque[ItemT]) -> Sequence[ItemT]:
        """Take the oldest items that fit into one request from the queue: at least one."""
        kind = self._kind
        taken: dict[Hashable, ItemT] = {}
        while queued and len(taken) < kind.items_max and kind.key_of(queued[0]) not in taken:
            one = queued.popleft()
            taken[kind.key_of(one)] = one
        return list(taken.values())

    def _send(self, broker_id: int, items: Sequence[ItemT]) -> None:
        kind = self._kind
        reply = self._links.call(broker_id, kind.request(items), kind.version, purpose=kind.purpose)
        if reply.is_settled:
            kind.settle_items(items, reply)
        else:
            reply.call_when_settled(partial(kind.settle_items, items, reply))
