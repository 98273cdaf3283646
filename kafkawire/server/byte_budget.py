"""What all connections together may hold in memory: the bound that no single connection's limits can give."""

from __future__ import annotations

from typing import Final

LARGE_SHARE: Final = 0.75  # of the limit, for large frames that come in: the rest is kept for small ones
UNANSWERED_MAX_BYTES: Final = 64 * 1024 * 1024  # of requests; beyond it each connection has one Produce in flight
REPLIES_SHARE: Final = 0.25  # as much as the limit again, for replies that wait for peers to read


class ByteBudget:
    """Bytes of requests in flight over all connections (queued.max.request.bytes), and of replies that nobody reads.

    As in Kafka's SimpleMemoryPool the request that crosses the limit is still admitted: any request can be served by an
    idle broker, and the bound is the limit plus one request. Unlike there a large frame counts with the memory that its
    bytes have come for, not with the size it announces: peers that promise much and send little keep nobody waiting.
    So large frames together may reach their share half-way; then one of them at a time goes on to its end, and small
    ones are received all the while.

    Requests that wait for other replicas hold no memory, but the followers have to copy their records. Beyond
    `UNANSWERED_MAX_BYTES` the budget is crowded: a connection with a Produce in flight is muted until its reply has
    left, as Kafka mutes each connection for each request. So what a leader appends ahead of its ISR has a bound.
    """

    __slots__ = (
        "_finishing",
        "_large_limit_size_bytes",
        "_limit_size_bytes",
        "_replies_limit_size_bytes",
        "_unanswered_limit_size_bytes",
        "held_size_bytes",
        "large_size_bytes",
        "replies_size_bytes",
        "unanswered_size_bytes",
    )

    def __init__(self, limit_size_bytes: int, unanswered_limit_size_bytes: int = UNANSWERED_MAX_BYTES) -> None:
        self._limit_size_bytes = limit_size_bytes
        self._large_limit_size_bytes = int(limit_size_bytes * LARGE_SHARE)
        self._replies_limit_size_bytes = int(limit_size_bytes * REPLIES_SHARE)
        self._unanswered_limit_size_bytes = unanswered_limit_size_bytes
        self.held_size_bytes = 0  # requests in flight and large frames coming in
        self.large_size_bytes = 0  # of these the large frames
        self.replies_size_bytes = 0
        self.unanswered_size_bytes = 0  # of requests whose reply has not left, whether they hold memory or not
        self._finishing: object | None = None  # whose large frame may grow although the limit is reached

    def admits(self, owner: object, *, is_large: bool) -> bool:
        """Whether `owner` may receive, into a buffer of a large frame's own if `is_large`."""
        beyond_share_bytes = max(0, self.large_size_bytes - self._large_limit_size_bytes)  # of the one that may finish
        has_room = self.held_size_bytes - beyond_share_bytes < self._limit_size_bytes
        if not is_large:
            return has_room
        return (has_room and self.large_size_bytes < self._large_limit_size_bytes) or self._may_finish(owner)

    @property
    def is_exhausted(self) -> bool:
        """Not everybody may receive."""
        return self.held_size_bytes >= self._limit_size_bytes

    @property
    def is_crowded(self) -> bool:
        """A connection waits for its acknowledgements before it sends more."""
        return self.unanswered_size_bytes >= self._unanswered_limit_size_bytes

    @property
    def holds_too_many_replies(self) -> bool:
        """Somebody who does not read has to go."""
        return self.replies_size_bytes > self._replies_limit_size_bytes

    def _may_finish(self, owner: object) -> bool:
        """Whether the large frame of `owner` is the one that goes on. It is until `has_finished`."""
        if self._finishing is None:
            self._finishing = owner
        return self._finishing is owner

    def has_finished(self, owner: object) -> None:
        """The frame is whole, or its connection is gone."""
        if self._finishing is owner:
            self._finishing = None
