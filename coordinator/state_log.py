"""What the control plane's state is kept in: an internal topic's partition as a log of keys and values.

`broker.py` supplies it on top of the engine. A record without a value is a tombstone. What was appended is durable
when the high watermark passed it, and only then is it read (RULES C1). What was written in a producer's transaction
counts when a marker commits it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


FIRST_PROTOCOL: Final = 0  # of transactions, as Kafka's transaction.version numbers them
SECOND_PROTOCOL: Final = 2  # KIP-890
EPOCH_MAX: Final = 2**15 - 1  # no producer has that epoch: only markers do


class StateLogFailed(Exception):
    """The log cannot be written or read, or is not ours any more: what was appended last may be there or not."""

    level: ClassVar[int] = logging.WARNING  # for the operator


class StateLogMoved(StateLogFailed):
    """Another broker leads it by now, as whenever one stops: nothing is wrong."""

    level = logging.INFO


class StateRecord(NamedTuple):
    key: bytes
    value: bytes | None


class StateProducer(NamedTuple):
    """Who has a transaction."""

    producer_id: int
    epoch: int


class StateMarker(NamedTuple):
    """The end of a producer's transaction, as the coordinator of that epoch has it; `protocol`: of the transaction. In
    the second one (KIP-890) no record of it has the marker's epoch. What is read from a log does not tell."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool
    protocol: int = FIRST_PROTOCOL


def has_own_epoch(transaction: StateProducer | StateMarker) -> bool:
    """Whether it is a marker that ends nothing that was written in its own epoch."""
    return (
        isinstance(transaction, StateMarker)
        and transaction.protocol >= SECOND_PROTOCOL
        and transaction.epoch < EPOCH_MAX
    )


class StateBatch(NamedTuple):
    """Records that count at once, or, with a producer, when a marker says so."""

    records: Sequence[StateRecord]
    producer: StateProducer | None = None


class StateSlice(NamedTuple):
    """What the log has, in its order, where to read on, and in which epoch the last of what was read was written."""

    batches: Sequence[StateBatch | StateMarker]
    next_offset: int
    leader_epoch: int


class PendingWrite(Protocol):
    """One batch on its way."""

    @property
    def is_settled(self) -> bool: ...
    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when a batch that is not settled is."""

    def result(self) -> int:
        """The offset behind the batch, which is durable. Raises StateLogFailed."""


class StateLog(Protocol):
    """One partition of an internal topic, led by this broker in one epoch."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """The high watermark: what is below it is durable and can be read."""

    @property
    def load_end_offset(self) -> int:
        """How far it is read: to `end_offset`, or beyond it, to the end of the log as of `get`, where too few replicas
        are in sync for the high watermark to move (RULES K26)."""

    @property
    def stable_offset(self) -> int:
        """At most `end_offset`: of what is below it, it is decided whether it counts."""

    @property
    def batch_size_max_bytes(self) -> int:
        """What `append` takes at once, all overhead included."""

    @property
    def takes_writes(self) -> bool:
        """Whether enough replicas are in sync; otherwise `append` and `end_transaction` raise StateLogFailed, and what
        was appended before is settled once there are enough again."""

    @property
    def is_current(self) -> bool:
        """Whether a read may be answered that may be older than what a successor has acknowledged (RULES K24)."""

    def confirm(self, told: Callable[[bool], None]) -> None:
        """Call `told` with True once it is known that this broker led the partition when this was called, with False if
        that is not known in time."""

    def size_of(self, record: StateRecord) -> int:
        """At most so many bytes of a batch; `batch_overhead_bytes` come once."""

    @property
    def batch_overhead_bytes(self) -> int: ...
    async def wait_for_room(self) -> None:
        """Return when a batch may be appended: the disk may be busy with others'."""

    def append(
        self, records: Sequence[StateRecord], now_ms: int, producer: StateProducer | None = None
    ) -> PendingWrite:
        """One batch, at least one record. Batches are in the log in the order of the calls. Raises StateLogFailed."""

    def end_transaction(self, marker: StateMarker) -> PendingWrite:
        """One offset, like a batch of one record. Raises StateLogFailed."""

    def check(self, transaction: StateProducer | StateMarker) -> None:
        """Raises a TransactionError if what was appended by now forbids to go on with it, or to end it so, and
        StateLogFailed."""

    async def read(self, offset: int) -> StateSlice:
        """From `offset`, below `load_end_offset`, on: about a MiB. Below `end_offset`, never beyond that. Raises
        StateLogFailed."""

    def holds(self, leader_epoch: int, end_offset: int) -> bool:
        """Whether this log has the records below `end_offset`, the last of them written in that epoch (-1: there are
        none), as whoever led it then knew them, and can be read on from there. Raises StateLogFailed."""


class StateLogs(Protocol):
    async def get(self, topic_id: bytes, topic: str, partition: int) -> StateLog:
        """The log, from now on this one alone: those given before take nothing more, and what they took is in the log,
        or never will be. `load_end_offset` is no less than all that was acknowledged before: the high watermark may
        have to be waited for, unless too few replicas are in sync. Raises StateLogFailed."""
