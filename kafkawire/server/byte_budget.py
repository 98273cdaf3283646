"""What all connections together may hold in memory: the bound that no single connection's limits can give."""

from __future__ import annotations

import trio


class ByteBudget:
    """Bytes of requests in flight over all connections (queued.max.request.bytes).

    As in Kafka's SimpleMemoryPool the request that crosses the limit is still admitted: any request can be served by an
    idle broker, and the bound is the limit plus one request. Unlike there a large frame counts with the memory that its
    bytes have come for, not with the size it announces: peers that promise much and send little keep nobody waiting.
    So large frames together may reach the limit half-way; then one of them at a time goes on to its end.
    """

    __slots__ = ("_finishing", "_waiting", "held_size_bytes", "limit_size_bytes")

    def __init__(self, limit_size_bytes: int) -> None:
        self.limit_size_bytes = limit_size_bytes
        self.held_size_bytes = 0
        self._finishing: object | None = None  # whose large frame may grow although the limit is reached
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_exhausted(self) -> bool:
        return self.held_size_bytes >= self.limit_size_bytes

    def add(self, size_bytes: int) -> None:
        self.held_size_bytes += size_bytes
        if self._waiting and not self.is_exhausted:
            self._waiting.unpark_all()

    def may_finish(self, owner: object) -> bool:
        """Whether the large frame of `owner` is the one that goes on. It is until `has_finished`."""
        if self._finishing is None:
            self._finishing = owner
        return self._finishing is owner

    def has_finished(self, owner: object) -> None:
        """The frame is whole, or its connection is gone."""
        if self._finishing is owner:
            self._finishing = None
            self._waiting.unpark_all()

    async def wait(self) -> None:
        await self._waiting.park()
