"""Bound on the memory of all connections together. Limits of single connections cannot give it."""

from __future__ import annotations

from typing import Final

LARGE_SHARE: Final = 0.75  # of the limit, for incoming large frames; the rest is for small ones
UNANSWERED_MAX_BYTES: Final = 64 * 1024 * 1024  # of requests; beyond it each connection has one Produce in flight
REPLIES_SHARE: Final = 0.25  # of the limit, in addition to it, for replies that peers have not read


class ByteBudget:
    """Bytes of requests in flight over all connections (queued.max.request.bytes), and of unread replies.

    As in Kafka's SimpleMemoryPool the request that crosses the limit is still admitted: an idle broker can serve any
    request, and the bound is the limit plus one request. Unlike in Kafka, a large frame counts with the memory of its
    received bytes, not with its announced size: a peer that announces much and sends little delays no other peer. So
    large frames may together use up their share before one of them is whole; then one at a time is received to its end,
    and small frames are received all the while.

    Requests that wait for other replicas hold no memory, but the followers have to copy their records. Beyond
    `UNANSWERED_MAX_BYTES` the budget is crowded: a connection with a Produce in flight is muted until its reply has
    left, as Kafka mutes each connection for each request. So the records that a leader appends ahead of its ISR are
    bounded.
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
        self.unanswered_size_bytes = 0  # of requests whose reply has not left, with or without memory
        self._finishing: object | None = None  # owner of the large frame that may grow beyond the limit

    def admits(self, owner: object, *, is_large: bool) -> bool:
        """Whether `owner` may receive, into a buffer of a large frame's own if `is_large`."""
        beyond_share_bytes = max(0, self.large_size_bytes - self._large_limit_size_bytes)  # of the `_finishing` frame
        has_room = self.held_size_bytes - beyond_share_bytes < self._limit_size_bytes
        if not is_large:
            return has_room
        return (has_room and self.large_size_bytes < self._large_limit_size_bytes) or self._may_finish(owner)

    @property
    def is_exhausted(self) -> bool:
        """Whether the limit is reached: only admitted connections may receive."""
        return self.held_size_bytes >= self._limit_size_bytes

    @property
    def is_crowded(self) -> bool:
        """Whether connections with a Produce in flight are muted."""
        return self.unanswered_size_bytes >= self._unanswered_limit_size_bytes

    @property
    def holds_too_many_replies(self) -> bool:
        """Whether a connection with unread replies has to be closed."""
        return self.replies_size_bytes > self._replies_limit_size_bytes

    def _may_finish(self, owner: object) -> bool:
        """Whether the large frame of `owner` may grow beyond the limit. It may until `note_finished`."""
        if self._finishing is None:
            self._finishing = owner
        return self._finishing is owner

    def note_finished(self, owner: object) -> None:
        """End the permission of `owner`: its frame is whole, or its connection has ended."""
        if self._finishing is owner:
            self._finishing = None
