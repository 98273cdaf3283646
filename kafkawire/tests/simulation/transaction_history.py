"""What producers in transactions asked and were told, and what readers of committed data saw: a part of the history.

Every record has a unique value, (transaction, number within it), and every transaction a number of its own, which is
also the offset that it commits. Those of one transactional id have rising numbers: a later producer fences the one
before.
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
    """What the producer knows of its transaction in the end."""

    COMMITTED = "committed"
    ABORTED = "aborted"  # or never asked to be committed: sooner or later it is aborted
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Written:
    """A record that is in the log, for certain or perhaps."""

    target: Target
    value: Value
    key: int
    is_acked: bool = False


@dataclass(slots=True)
class Transaction:
    """From its beginning to what was heard of its end."""

    number: int
    transactional_id: str
    group: str
    fate: Fate = Fate.ABORTED
    completed: int = UNANSWERED  # when it was known to be committed
    has_offset: bool = False
    written: list[Written] = field(default_factory=list)


@dataclass(slots=True)
class PlainCommit:
    """An offset that was committed without a transaction; `completed` is when that was known."""

    number: int
    group: str
    completed: int = UNANSWERED


@dataclass(slots=True)
class Seen:
    """A record as a reader of committed data was given it."""

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
    records: tuple[Seen, ...]
    next_offset: int
    epoch: int = 0  # in which whoever answered leads, where there are several brokers; -1: in none


@dataclass(slots=True)
class StableOffset:
    """What a group was told that does not take what is undecided; NO_OFFSET where nothing is committed."""

    group: str
    invoked: int
    completed: int
    number: int


@dataclass(slots=True)
class TransactionHistory:
    """All events of all transactions; `final` has what was read of each partition in the end."""

    transactions: list[Transaction] = field(default_factory=list)
    plain_commits: list[PlainCommit] = field(default_factory=list)
    reads: list[StableRead] = field(default_factory=list)
    offsets: list[StableOffset] = field(default_factory=list)
    final: dict[Target, list[Seen]] = field(default_factory=dict)
    compacted: frozenset[Target] = frozenset()
    numbers: int = 0

    def next_number(self) -> int:
        """Of a transaction, or of a plain commit."""
        self.numbers += 1
        return self.numbers
