"""Interface between a shard and the table whose state it keeps in a log. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coordinator.state.log import StateMarker, StateProducer, StateRecord

FutureT = TypeVar("FutureT")
NEVER_MS: Final = 2**63 - 1


class Moment(NamedTuple):
    """When a command comes, on a steady clock and the wall's, and a source of random ids."""

    now_ms: int
    wall_ms: int
    new_id: Callable[[], str]


class TableEntry(Protocol):
    """An entry of a table. `last_batch`: the commit batch that has to be durable before the entry is shown, kept by the
    shard."""

    last_batch: object


class Effects(NamedTuple, Generic[FutureT]):
    """Effects of one command. No entry: there is nothing under that name.

    `transaction`: the records are written in that of a producer, and do not count yet; or it ends here, and the
    records, which were written in it before, count from now on, for all of `entries`. `outbox`: messages that leave
    when all of it is durable.
    """

    entry: TableEntry | None
    answers: Sequence[tuple[FutureT, object]]
    records: Sequence[StateRecord]
    transaction: StateProducer | StateMarker | None = None
    entries: Sequence[TableEntry] = ()
    outbox: Sequence[object] = ()


class StateTable(Protocol[FutureT]):
    """A table. Its commands are its own; a shard knows the methods below.

    `FutureT` identifies a request: every command answers it once, in its effects or in those of a later one.
    """

    def apply(self, record: StateRecord) -> None:
        """Apply a record of the log. Errors: UnknownRecord."""

    def apply_in_transaction(self, producer: StateProducer, record: StateRecord) -> None:
        """Apply a record of the log that counts when its transaction is committed. Errors: UnknownRecord."""

    def apply_marker(self, marker: StateMarker) -> Sequence[StateRecord]:
        """End a transaction; return its records that count from now on."""

    def forget_remnants(self) -> None:
        """Drop entries without content, after the last record of the log, if `wake` comes later."""

    def wake(self, moment: Moment) -> Iterable[Effects[FutureT]]:
        """Start time, after the last record of the log, once all of them are below the high watermark."""

    def next_due_ms(self) -> int:
        """When `expire` has something to do, at the earliest."""

    def expire(self, moment: Moment) -> Iterable[Effects[FutureT]]:
        """The effects of the time that has passed."""

    def waiting(self) -> Iterable[FutureT]:
        """The requests that are not answered yet."""
