"""Requests of one connection between start and reply, in order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final, NamedTuple

import trio

from kafkawire.requests.started import Segment, StartedRequest
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.connection_info import ConnectionInfo

REPLIES_PER_SEND: Final = 16  # replies sent together at most

_SIZE: Final = Struct(">i")


class Answers(NamedTuple):
    """Replies of the oldest `requests`, each of the `replies` behind its size.

    A request may turn out to break the protocol, such as an error with acks=0. The replies before it still leave.
    """

    segments: list[Segment]
    requests: int
    replies: int
    violation: ProtocolViolation | None


class Pipeline:
    """Order of started requests. At most one task at a time awaits the oldest one."""

    __slots__ = ("_info", "_on_ready", "_pending", "_spawn", "_waiting", "is_quiet")

    def __init__(self, info: ConnectionInfo, spawn: Callable[..., None], on_ready: Callable[[], None]) -> None:
        """`spawn` starts a task; `on_ready` is called when there may be replies."""
        self._info = info
        self._spawn = spawn
        self._on_ready = on_ready
        self._pending: deque[StartedRequest] = deque()
        self._waiting: trio.CancelScope | None = None  # a task awaits the oldest request
        self.is_quiet = True  # nothing to answer or begin since the last `on_ready`

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def add(self, started: StartedRequest) -> None:
        """Add a request behind the others."""
        self._pending.append(started)
        if started.two_stage and not started.is_settled:
            started.call_when_settled(self._on_ready)
        else:
            self.is_quiet = False

    def is_late(self, now_s: float) -> bool:
        """Whether the oldest request has reached its deadline."""
        return bool(self._pending) and self._pending[0].deadline_s <= now_s

    def answers(self, now_s: float) -> Answers | None:
        """Take out the replies that are ready; None if the oldest is not."""
        pending = self._pending
        if pending and self._info.ends_because is not None and not pending[0].two_stage:
            return Answers([], 0, 0, self._info.violation)  # waiting requests are not executed any more
        if not pending or not self._is_answerable(pending[0], now_s):
            self.is_quiet = True
            return None
        segments: list[Segment] = []
        requests = replies = 0
        while True:
            try:
                reply = pending[0].reply()
            except ProtocolViolation as error:
                return Answers(segments, requests, replies, error)
            pending.popleft()
            requests += 1
            if reply is not None:
                segments.append(_SIZE.pack(sum(map(len, reply))))
                segments += reply
                replies += 1
            if not pending or requests == REPLIES_PER_SEND or self._info.ends_because is not None:
                return Answers(segments, requests, replies, None)
            if not self._is_answerable(pending[0], now_s):
                return Answers(segments, requests, replies, None)

    def clear(self) -> None:
        """Drop all requests: no reply can leave, and no task awaits one."""
        if self._waiting is not None:
            self._waiting.cancel()
        self.abandon()
        self._pending.clear()

    def abandon(self) -> None:
        """Give up all replies. Requests that have begun go on; others may still begin."""
        for one in self._pending:
            one.abandon()

    def _is_answerable(self, oldest: StartedRequest, now_s: float) -> bool:
        """Whether the oldest request has a reply. If it is single-stage and not begun, begin it."""
        if oldest.is_settled or oldest.deadline_s <= now_s:
            return True
        if oldest.two_stage or self._waiting is not None:
            return False
        work = oldest.begin()
        if work is not None:
            self._waiting = trio.CancelScope()
            self._spawn(self._wait, self._waiting, work)
        return work is None

    async def _wait(self, scope: trio.CancelScope, work: Awaitable[None]) -> None:
        with scope:
            await work
        self._waiting = None
        if not scope.cancelled_caught:
            self._on_ready()
