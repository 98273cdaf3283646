"""The bounded queue behind a watch, shared by the back ends."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from coordinator.metadata.store import EventKind, NodeEvent, SessionLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUEUE_MAX_EVENTS = 1_000


class QueuedWatch:
    """A reader that falls behind loses its events and gets one MISSED instead: memory stays bounded."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._subtrees = tuple(f"{path}/" for path in paths)
        self._events: deque[NodeEvent] = deque()
        self._arrived = trio.Event()
        self._lost = False
        self.closed = False

    def offer(self, events: Iterable[NodeEvent]) -> None:
        """Queues the events that are about the watched subtrees."""
        for event in events:
            if self.closed:
                return
            if event.path in self._paths or event.path.startswith(self._subtrees):
                if len(self._events) < QUEUE_MAX_EVENTS:
                    self._events.append(event)
                else:
                    self._events = deque([NodeEvent(EventKind.MISSED, "")])
                self._arrived.set()

    def lose(self) -> None:
        """The session is over: the reader gets SessionLost after what is queued."""
        self._lost = True
        self._arrived.set()

    async def receive(self) -> NodeEvent:
        """The next event; see `Watch`."""
        while not self._events:
            if self._lost:
                raise SessionLost
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._events.popleft()

    def close(self) -> None:
        """Ends the subscription; the owner drops it."""
        self.closed = True
        self._events.clear()
