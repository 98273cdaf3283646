"""What a shard asks of the table whose state it keeps in a log, and what a command of it leaves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coordinator.state_log import StateMarker, StateProducer, StateRecord

AskerT = TypeVar("AskerT")
NEVER_MS: Final = 2**63 - 1


class Moment(NamedTuple):
    """When a command comes, and chance."""

    now_ms: int
    wall_ms: int
    new_id: Callable[[], str]


class Entry(Protocol):
    """One of the things that a table knows. `mark` is the shell's: what has to be durable before it is spoken of."""

    mark: object


class Effects(NamedTuple, Generic[AskerT]):
    """Of one command. No entry: there is nothing under that name.

    `transaction`: the records are written in that of a producer, and do not count yet; or it ends here, and they were
    written in it before and count from now on, for all of `entries`. `outbox`: what leaves when all of it is durable.
    """

    entry: Entry | None
    answers: Sequence[tuple[AskerT, object]]
    records: Sequence[StateRecord]
    transaction: StateProducer | StateMarker | None = None
    entries: Sequence[Entry] = ()
    outbox: Sequence[object] = ()


class StateTable(Protocol[AskerT]):
    """Commands are its own; a shard knows what follows.

    `AskerT` is who asks: every command answers it once, in its effects or in those of a later one.
    """

    def apply(self, record: StateRecord) -> None:
        """What the log tells. Errors: UnknownRecord."""

    def apply_in_transaction(self, producer: StateProducer, record: StateRecord) -> None:
        """What the log tells, to count when that transaction is committed. Errors: UnknownRecord."""

    def apply_marker(self, marker: StateMarker) -> Sequence[StateRecord]:
        """A transaction is over; returns what of it counts from now on."""

    def forget_remnants(self) -> None:
        """After the last record that the log tells, where `wake` comes later: entries that nothing is known of."""

    def wake(self, moment: Moment) -> Iterable[Effects[AskerT]]:
        """After the last record that the log tells, once all of them are below the high watermark: time begins."""

    def next_due_ms(self) -> int:
        """When `expire` has something to do, at the earliest."""

    def expire(self, moment: Moment) -> Iterable[Effects[AskerT]]:
        """What time has brought about."""

    def waiting(self) -> Iterable[AskerT]:
        """Who is not answered yet."""
