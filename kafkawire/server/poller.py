"""Readiness of connections to receive or send: a poller of the server's own, asked once a turn.

Why it exists: trio's way to wait for a socket costs a task, an epoll_ctl and a switch for every receive. Here every
socket is registered once, level-triggered, and one task waits for all of them. Events in memory (a test's stream, bytes
that TLS has decrypted) are noted instead.

The poller only names the registered watcher; the watcher decides what to do.
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import trio

READ: Final = 1  # same as EPOLLIN
WRITE: Final = 4  # same as EPOLLOUT
FOUND_MAX: Final = 128  # events of one poll; the rest come first in the next one


class Watcher(Protocol):
    """A connection, as the poller sees it."""

    def visit(self, events: int) -> None:
        """Handle READ or WRITE events. They may be spurious."""

    def answer(self) -> None:
        """Send replies that are ready."""

    def end_turn(self) -> None:
        """Update accounts, at the end of a turn in which the watcher was visited or answered."""


class SystemPoller(Protocol):
    """Poller of the operating system. Events are READ and WRITE."""

    def fileno(self) -> int:
        """A descriptor that is readable when `poll` has events."""
        ...

    def register(self, descriptor: int, events: int, /) -> None: ...
    def modify(self, descriptor: int, events: int, /) -> None: ...
    def unregister(self, descriptor: int, /) -> None: ...
    def poll(self) -> Iterable[tuple[int, int]]:
        """Ready descriptors with their events, without waiting. It may leave some for later calls.

        An error or a hang-up counts as the registered events.
        """

    def close(self) -> None: ...


class EpollPoller:
    """Poller on Linux."""

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def register(self, descriptor: int, events: int, /) -> None:
        self._epoll.register(descriptor, events)

    def modify(self, descriptor: int, events: int, /) -> None:
        self._epoll.modify(descriptor, events)

    def unregister(self, descriptor: int, /) -> None:
        self._epoll.unregister(descriptor)

    def poll(self) -> Iterable[tuple[int, int]]:
        return self._epoll.poll(0, FOUND_MAX)

    def close(self) -> None:
        self._epoll.close()


class SelectorPoller:
    """Poller elsewhere: a selector that has a descriptor of its own, which is kqueue."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector: Any = selector if selector is not None else selectors.DefaultSelector()

    def fileno(self) -> int:
        descriptor: int = self._selector.fileno()  # not all selectors have one; the types do not show it
        return descriptor

    def register(self, descriptor: int, events: int, /) -> None:
        self._selector.register(descriptor, _to_selectors(events))

    def modify(self, descriptor: int, events: int, /) -> None:
        self._selector.modify(descriptor, _to_selectors(events))

    def unregister(self, descriptor: int, /) -> None:
        self._selector.unregister(descriptor)

    def poll(self) -> Iterable[tuple[int, int]]:
        return [(key.fd, _from_selectors(events)) for key, events in self._selector.select(0)]

    def close(self) -> None:
        self._selector.close()


def _to_selectors(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


def _from_selectors(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


def system_poller() -> SystemPoller:
    """The best poller of this platform."""
    return EpollPoller() if hasattr(select, "epoll") else SelectorPoller()


class Poller:
    """Watchers by descriptor, and noted watchers. The system is asked only if there is a descriptor."""

    def __init__(self, on_noted: Callable[[], None], open_system: Callable[[], SystemPoller] = system_poller) -> None:
        """`on_noted` is called when there is an event without a descriptor."""
        self._on_noted = on_noted
        self._open_system = open_system
        self._system: SystemPoller | None = None
        self._opening = trio.lowlevel.ParkingLot()
        self._watchers: dict[int, tuple[Watcher, int]] = {}
        self._noted: dict[Watcher, int] = {}

    async def opened(self) -> SystemPoller:
        """The system's poller, once there is a descriptor to watch."""
        while self._system is None:
            await self._opening.park()
        return self._system

    def watch(self, descriptor: int, watcher: Watcher, events: int) -> None:
        """Report exactly these events to `watcher` from now on."""
        if self._system is None:
            self._system = self._open_system()
            self._opening.unpark_all()
        if descriptor in self._watchers:
            self._system.modify(descriptor, events)
        else:
            self._system.register(descriptor, events)
        self._watchers[descriptor] = watcher, events

    def unwatch(self, descriptor: int) -> None:
        """Remove a watched descriptor."""
        assert self._system is not None
        del self._watchers[descriptor]
        self._system.unregister(descriptor)

    def note(self, watcher: Watcher, events: int) -> None:
        """Have `watcher` visited in the next turn."""
        self._noted[watcher] = self._noted.get(watcher, 0) | events
        self._on_noted()

    def forget(self, watcher: Watcher) -> None:
        """Forget a watcher that has ended; its descriptor was unwatched before."""
        self._noted.pop(watcher, None)

    def take(self) -> list[tuple[Watcher, int]]:
        """Watchers with their events. Noted ones come first, because they have waited since an earlier turn."""
        noted, self._noted = self._noted, {}
        found = list(noted.items())
        if self._system is not None:
            for descriptor, events in self._system.poll():
                known = self._watchers.get(descriptor)
                if known is not None:
                    found.append((known[0], events if events & known[1] else known[1]))
        return found

    def close(self) -> None:
        if self._system is not None:
            self._system.close()
