"""Which connections have something to receive, or room to send: a poller of the server's own, asked once a turn.

Why it exists: trio's way to wait for a socket is a task, an epoll_ctl and a switch for every receive. Here every socket
is registered once, level-triggered, and one task waits for all of them together. What lies in memory, a stream of a
test or bytes that TLS has decrypted, is noted instead.

It refuses to know what is to be done: it names the watcher that was registered.
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import trio

READ: Final = 1  # as EPOLLIN
WRITE: Final = 4  # as EPOLLOUT
FOUND_MAX: Final = 128  # at once; those that were not told of are the first next time


class Watcher(Protocol):
    """A connection."""

    def visit(self, events: int) -> None:
        """It may be READ, or WRITE to; now and then it is told in vain."""

    def answer(self) -> None:
        """Send what is ready."""

    def settle(self) -> None:
        """Take stock, at the end of a turn in which it was visited, or answered."""


class SystemPoller(Protocol):
    """What the system has for it. Events are READ and WRITE."""

    def fileno(self) -> int:
        """Readable when `poll` has something."""
        ...

    def register(self, descriptor: int, events: int, /) -> None: ...
    def modify(self, descriptor: int, events: int, /) -> None: ...
    def unregister(self, descriptor: int, /) -> None: ...
    def poll(self) -> Iterable[tuple[int, int]]:
        """Descriptors with their events, without waiting, or some of them; each comes to be told of sooner or later.

        An error or a hang-up is what was asked for.
        """

    def close(self) -> None: ...


class EpollPoller:
    """Linux."""

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
    """Elsewhere: what `selectors` has that can itself be waited for, which is kqueue."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector: Any = selector if selector is not None else selectors.DefaultSelector()

    def fileno(self) -> int:
        descriptor: int = self._selector.fileno()  # not all have one, and no type says which
        return descriptor

    def register(self, descriptor: int, events: int, /) -> None:
        self._selector.register(descriptor, _of_selectors(events))

    def modify(self, descriptor: int, events: int, /) -> None:
        self._selector.modify(descriptor, _of_selectors(events))

    def unregister(self, descriptor: int, /) -> None:
        self._selector.unregister(descriptor)

    def poll(self) -> Iterable[tuple[int, int]]:
        return [(key.fd, _ours(events)) for key, events in self._selector.select(0)]

    def close(self) -> None:
        self._selector.close()


def _of_selectors(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (selectors.EVENT_WRITE if events & WRITE else 0)


def _ours(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


def system_poller() -> SystemPoller:
    """The best there is here."""
    return EpollPoller() if hasattr(select, "epoll") else SelectorPoller()


class Poller:
    """Watchers by descriptor, and those that were noted. The system is asked only once there is a descriptor."""

    def __init__(self, on_noted: Callable[[], None], open_system: Callable[[], SystemPoller] = system_poller) -> None:
        """`on_noted` is told that there is something to take though no descriptor says so."""
        self._on_noted = on_noted
        self._open_system = open_system
        self._system: SystemPoller | None = None
        self._opening = trio.lowlevel.ParkingLot()
        self._watchers: dict[int, tuple[Watcher, int]] = {}
        self._noted: dict[Watcher, int] = {}

    async def opened(self) -> SystemPoller:
        """The system's, once there is a descriptor to watch."""
        while self._system is None:
            await self._opening.park()
        return self._system

    def watch(self, descriptor: int, watcher: Watcher, events: int) -> None:
        """Tell `watcher` of these events from now on, and of no others."""
        if self._system is None:
            self._system = self._open_system()
            self._opening.unpark_all()
        if descriptor in self._watchers:
            self._system.modify(descriptor, events)
        else:
            self._system.register(descriptor, events)
        self._watchers[descriptor] = watcher, events

    def unwatch(self, descriptor: int) -> None:
        """One that is watched."""
        assert self._system is not None
        del self._watchers[descriptor]
        self._system.unregister(descriptor)

    def note(self, watcher: Watcher, events: int) -> None:
        """`watcher` is to look in the next turn."""
        self._noted[watcher] = self._noted.get(watcher, 0) | events
        self._on_noted()

    def forget(self, watcher: Watcher) -> None:
        """It is gone; its descriptor was unwatched."""
        self._noted.pop(watcher, None)

    def take(self) -> list[tuple[Watcher, int]]:
        """Who is to look, and for what: the noted first, they have waited since an earlier turn."""
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
