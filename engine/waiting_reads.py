"""Reads that wait to be confirmed (RULES K24), of all partitions of one broker, and the clock that orders them.

A counter orders the events of one process. Times are from CLOCK_BOOTTIME, which goes on while the machine sleeps.
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
        """Note that a read of this leadership begins to wait."""
        self._leaderships[leadership] = None
        self.on_wait()

    def remove(self, leadership: LeadershipReads) -> None:
        """Remove a leadership that has no waiting reads any more."""
        self._leaderships.pop(leadership, None)

    @property
    def needs_metadata(self) -> bool:
        """Whether a read waits that the followers alone cannot confirm."""
        return any(len(one) and one.needs_metadata for one in self._leaderships)

    def check(self) -> None:
        """Answer the reads that followers have confirmed."""
        self._each(lambda one: one.check())

    def confirm(self, as_of: AsOf) -> None:
        """Answer the reads that came before this moment: the metadata have confirmed all these leaderships."""
        self._each(lambda one: one.confirm(as_of))

    def expire(self, before_ms: int) -> None:
        """Refuse the reads that came before this time, in ms of the clock."""
        self._each(lambda one: one.expire(before_ms))

    def _each(self, call: Callable[[LeadershipReads], None]) -> None:
        for one in [*self._leaderships]:
            call(one)
            if not len(one):
                self.remove(one)


class ConfirmationInputs(NamedTuple):
    """Dependencies of a leader that confirms its reads (RULES K24).

    `has_session`: whether this broker has a metadata session, as far as it knows. `waiting`: the waiting reads of all
    its leaderships.
    """

    has_session: Callable[[], bool]
    waiting: WaitingReads


def _ignore() -> None: ...
