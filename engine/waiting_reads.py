"""Reads of all partitions of one broker that wait until it is known which broker leads, and the clock of their order.

Events of one process are ordered by a counter. Times go on while the machine sleeps (CLOCK_BOOTTIME).
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

NEVER_MS: Final = -(2**62)


class AsOf(NamedTuple):
    """A moment of this process: its time, and its order among all requests and responses."""

    ms: int
    order: int


NEVER: Final = AsOf(NEVER_MS, -1)


class EventClock:
    """Orders the requests and responses of one process, and tells their times."""

    __slots__ = ("_order", "boot_ms")

    def __init__(self, boot_ms: Callable[[], int]) -> None:
        self.boot_ms = boot_ms
        self._order = 0

    def next(self) -> AsOf:
        """A moment after all moments before."""
        self._order += 1
        return AsOf(self.boot_ms(), self._order)


class LeadershipReads(Protocol):
    """Reads of one leadership; see `engine.partitions.confirmed_reads`."""

    def __len__(self) -> int: ...
    @property
    def needs_metadata(self) -> bool: ...
    def check(self) -> None: ...
    def confirm(self, as_of: AsOf) -> None: ...
    def expire(self, before_ms: int) -> None: ...


class WaitingReads:
    """Leaderships of one broker with reads that wait. `on_wait`: called when there is one more read."""

    def __init__(self, clock: EventClock) -> None:
        self.clock = clock
        self._leaderships: dict[LeadershipReads, None] = {}
        self.on_wait: Callable[[], None] = _ignore

    def __len__(self) -> int:
        return sum(map(len, self._leaderships))

    def add(self, leadership: LeadershipReads) -> None:
        """One of its reads begins to wait."""
        self._leaderships[leadership] = None
        self.on_wait()

    def remove(self, leadership: LeadershipReads) -> None:
        """Its reads are told."""
        self._leaderships.pop(leadership, None)

    @property
    def needs_metadata(self) -> bool:
        """Whether a read waits that followers alone cannot confirm."""
        return any(len(one) and one.needs_metadata for one in self._leaderships)

    def check(self) -> None:
        """Tell the reads that followers have confirmed."""
        self._each(lambda one: one.check())

    def confirm(self, as_of: AsOf) -> None:
        """Tell the reads that came before this moment: the metadata have shown it for all leaderships, as they are."""
        self._each(lambda one: one.confirm(as_of))

    def expire(self, before_ms: int) -> None:
        """Give up the reads that came before."""
        self._each(lambda one: one.expire(before_ms))

    def _each(self, call: Callable[[LeadershipReads], None]) -> None:
        for one in [*self._leaderships]:
            call(one)
            if not len(one):
                self.remove(one)


class Confirming(NamedTuple):
    """By what a leader tells whether it still is one (RULES K24).

    `has_session`: whether the metadata counts on this broker, as far as it knows; `waiting`: of all its leaderships.
    """

    has_session: Callable[[], bool]
    waiting: WaitingReads


def _ignore() -> None: ...
