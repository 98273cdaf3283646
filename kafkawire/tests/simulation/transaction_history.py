"""Requests of transactional producers and the replies, and the reads of committed data: a part of the history.

Each record has a unique value, (transaction, number within it), and each transaction a number of its own, which is also
the offset that it commits. The numbers of one transactional id rise: a later producer fences the earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kafkawire.tests.simulation.history import UNANSWERED
from kafkawire.tests.simulation.plan import Target

Value = tuple[int, int]
NO_OFFSET = -1
NO_EPOCH = -1


class Fate(Enum):
    """The producer's final knowledge of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"  # or never asked to be committed: sooner or later it is aborted
    UNKNOWN = "unknown"


@dataclass(slots=True)
class WrittenRecord:
    """A record that is in the log, certainly or perhaps."""

    target: Target
    value: Value
    key: int
    is_acked: bool = False


@dataclass(slots=True)
class Transaction:
    """A transaction, from its beginning to the reply about its end."""

    number: int
    transactional_id: str
    group: str
    fate: Fate = Fate.ABORTED
    completed: int = UNANSWERED  # when it was known to be committed
    has_offset: bool = False
    written: list[WrittenRecord] = field(default_factory=list)


@dataclass(slots=True)
class PlainCommit:
    """An offset that was committed without a transaction. `completed`: the time at which that was known."""

    number: int
    group: str
    completed: int = UNANSWERED


@dataclass(slots=True)
class ReadRecord:
    """A record in a read of committed data."""

    offset: int
    value: Value
    key: int


@dataclass(slots=True)
class StableRead:
    """A fetch of committed records from an offset on."""

    target: Target
    offset: int
    invoked: int
    completed: int
    stable_end: int
    high_watermark: int
    records: tuple[ReadRecord, ...]
    next_offset: int
    epoch: int = 0  # the leader epoch of the answering broker, among several brokers; -1: none


@dataclass(slots=True)
class StableOffset:
    """The offset in the reply to a group that requires stable offsets; NO_OFFSET if none is committed."""

    group: str
    invoked: int
    completed: int
    number: int


@dataclass(slots=True)
class TransactionHistory:
    """All events of all transactions. `final`: the final contents of each partition."""

    transactions: list[Transaction] = field(default_factory=list)
    plain_commits: list[PlainCommit] = field(default_factory=list)
    reads: list[StableRead] = field(default_factory=list)
    offsets: list[StableOffset] = field(default_factory=list)
    final: dict[Target, list[ReadRecord]] = field(default_factory=dict)
    compacted: frozenset[Target] = frozenset()
    numbers: int = 0

    def next_number(self) -> int:
        """A number for a transaction, or for a plain commit."""
        self.numbers += 1
        return self.numbers
