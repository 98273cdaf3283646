"""Requests of one connection between their start and their reply, in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final, NamedTuple

import trio

from kafkawire.requests.started import Segment, StartedRequest
from kafkawire.wire.connection import ProtocolViolation
from kafkawire.wire.connection_info import ConnectionInfo

REPLIES_PER_SEND: Final = 16  # that leave together

_SIZE: Final = Struct(">i")


class Answers(NamedTuple):
    """What goes out to the oldest `requests`, each of the `replies` behind its size.

    A request may turn out, as with acks=0 and an error, to break the protocol: the replies before it still leave.
    """

    segments: list[Segment]
    requests: int
    replies: int
    violation: ProtocolViolation | None


class Pipeline:
    """Starts nothing by itself. What has to wait is awaited by a task, at most one at a time."""

    __slots__ = ("_info", "_on_ready", "_pending", "_spawn", "_waiting", "is_quiet")

    def __init__(self, info: ConnectionInfo, spawn: Callable[..., None], on_ready: Callable[[], None]) -> None:
        """`spawn` starts a task; `on_ready` is told that there may be answers."""
        self._info = info
        self._spawn = spawn
        self._on_ready = on_ready
        self._pending: deque[StartedRequest] = deque()
        self._waiting: trio.CancelScope | None = None  # the oldest has a task
        self.is_quiet = True  # there is nothing to answer, or to begin, unless `on_ready` has said so

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def add(self, started: StartedRequest) -> None:
        """One more, behind the others."""
        self._pending.append(started)
        if started.two_stage and not started.is_settled:
            started.call_when_settled(self._on_ready)
        else:
            self.is_quiet = False

    def is_late(self, now_s: float) -> bool:
        """The oldest has reached its deadline."""
        return bool(self._pending) and self._pending[0].deadline_s <= now_s

    def answers(self, now_s: float) -> Answers | None:
        """Those that are ready, out of here; None when the oldest is not."""
        pending = self._pending
        if pending and self._info.ends_because is not None and not pending[0].two_stage:
            return Answers([], 0, 0, self._info.violation)  # what had to wait for its turn is not executed any more
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
        """No reply leaves any more: nothing is waited for on behalf of one."""
        if self._waiting is not None:
            self._waiting.cancel()
        self.abandon()
        self._pending.clear()

    def abandon(self) -> None:
        """No reply can leave any more. What has begun goes on, and what has not may begin yet."""
        for one in self._pending:
            one.abandon()

    def _is_answerable(self, oldest: StartedRequest, now_s: float) -> bool:
        """Whether there is a reply. One that is not two-stage begins now, if it has not."""
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
