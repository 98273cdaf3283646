"""The values of a table of transactional ids: its settings, dependencies, entries and markers. Without behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from coordinator.shards.table import NEVER_MS, FutureT
from coordinator.transactions.api import FIRST_PROTOCOL, Partition, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Collection

    from coordinator.errors import CoordinatorError
    from coordinator.shards.table import Moment
    from coordinator.transactions.transitions import NewId, Transaction

PARKED_MS: Final = 100
PARKED_MAX: Final = 16  # of one transactional id, whose producer asks one thing after the other

TransitionStep = Callable[["Moment"], "tuple[Transaction | None, object]"]  # raises TransactionError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits; defaults are Kafka's."""

    timeout_max_ms: int = 900_000  # transaction.max.timeout.ms
    expiration_ms: int = 7 * 24 * 3_600_000  # transactional.id.expiration.ms
    timeout_check_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    record_max_bytes: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDeps:
    """The dependencies of a table. `protocol`: the one in which the cluster itself ends transactions."""

    new_id: NewId
    protocol: Callable[[], int]


class DueMarkers(NamedTuple):
    """The markers of a transaction whose decision is durable; `identity` and `protocol` are those of the markers."""

    transactional_id: str
    identity: ProducerIdentity
    is_commit: bool
    partitions: Collection[Partition]
    protocol: int = FIRST_PROTOCOL


@dataclass(slots=True)
class Attempt(Generic[FutureT]):
    """A try of a command. `due_ms`: how long it may be parked; `refusal`: its answer after that."""

    future: FutureT
    step: TransitionStep
    due_ms: int
    refusal: CoordinatorError | None = None


@dataclass(slots=True, eq=False)
class TransactionEntry(Generic[FutureT]):
    """A `coordinator.shards.table.TableEntry`. `known` is None until the first transition.

    `due_ms`: when the open transaction has taken too long, on a steady clock.
    """

    transactional_id: str
    known: Transaction | None = None
    due_ms: int = NEVER_MS
    parked: list[Attempt[FutureT]] = field(default_factory=list)
    last_batch: object = None
