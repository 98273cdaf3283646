"""The log of a coordinator's state: an internal topic's partition as a log of keys and values.

`broker.py` supplies it on top of the engine. A record without a value is a tombstone. An appended batch is durable when
the high watermark has passed it, and only then it can be read (RULES C1). Records in a producer's transaction count
when a marker commits them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coordinator.api import Future


FIRST_PROTOCOL: Final = 0  # of transactions, as Kafka's transaction.version numbers them
SECOND_PROTOCOL: Final = 2  # KIP-890
EPOCH_MAX: Final = 2**15 - 1  # no producer has that epoch: only markers do


class StateLogFailed(Exception):
    """The log cannot be written or read, or is not ours any more: the last appends may be in it or not."""

    level: ClassVar[int] = logging.WARNING  # for the operator


class StateLogMoved(StateLogFailed):
    """Another broker leads the partition by now, as after an orderly stop: nothing is wrong."""

    level = logging.INFO


class StateRecord(NamedTuple):
    key: bytes
    value: bytes | None


class StateProducer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    epoch: int


class StateMarker(NamedTuple):
    """The end of a producer's transaction, decided by the coordinator of that epoch. `protocol`: of the transaction; in
    the second one (KIP-890) no record of it has the marker's epoch. A marker that was read from a log does not tell."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    is_commit: bool
    protocol: int = FIRST_PROTOCOL


def has_own_epoch(transaction: StateProducer | StateMarker) -> bool:
    """Whether this is a marker that ends no record of its own epoch."""
    return (
        isinstance(transaction, StateMarker)
        and transaction.protocol >= SECOND_PROTOCOL
        and transaction.epoch < EPOCH_MAX
    )


class StateBatch(NamedTuple):
    """Records that count at once, or, with a producer, when a marker commits them."""

    records: Sequence[StateRecord]
    producer: StateProducer | None = None


class StateSlice(NamedTuple):
    """A part of the log: batches in their order, the offset to read on from, and the leader epoch of the last record
    read."""

    batches: Sequence[StateBatch | StateMarker]
    next_offset: int
    leader_epoch: int


class StateLog(Protocol):
    """A partition of an internal topic, led by this broker in one epoch."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """The high watermark: records below it are durable and can be read."""

    @property
    def load_end_offset(self) -> int:
        """The offset up to which a load reads: `end_offset`, or, if too few replicas are in sync for the high watermark
        to move, the end of the log as of `get` (RULES K26)."""

    @property
    def stable_offset(self) -> int:
        """The last stable offset, at most `end_offset`: below it, every transaction is committed or aborted."""

    @property
    def batch_size_max_bytes(self) -> int:
        """The greatest size of one `append`, all overhead included."""

    @property
    def takes_writes(self) -> bool:
        """Whether enough replicas are in sync; otherwise `append` and `end_transaction` raise StateLogFailed, and
        earlier appends are settled once there are enough again."""

    @property
    def is_current(self) -> bool:
        """Whether reads may be answered that miss the acknowledged writes of a possible successor (RULES K24)."""

    def confirm(self, on_confirmed: Callable[[bool], None]) -> None:
        """Call `on_confirmed` with True once it is known that this broker led the partition when this was called, with
        False if that is not known in time."""

    def size_of(self, record: StateRecord) -> int:
        """The greatest size of the record in a batch; `batch_overhead_bytes` come once."""

    @property
    def batch_overhead_bytes(self) -> int: ...
    async def wait_for_room(self) -> None:
        """Return when a batch may be appended: the disk may be busy with other batches."""

    def append(self, records: Sequence[StateRecord], now_ms: int, producer: StateProducer | None = None) -> Future[int]:
        """Append one batch, at least one record. Batches are in the log in the order of the calls. Raises
        StateLogFailed."""

    def end_transaction(self, marker: StateMarker) -> Future[int]:
        """Append a marker. It takes one offset, like a batch of one record. Raises StateLogFailed."""

    def check(self, transaction: StateProducer | StateMarker) -> None:
        """Check that the appends so far allow the transaction to go on, or to end so. Raises TransactionError,
        StateLogFailed."""

    async def read(self, offset: int) -> StateSlice:
        """Read about 1 MiB from `offset` on, which is below `load_end_offset`. A read from below `end_offset` ends
        there. Raises StateLogFailed."""

    def holds(self, leader_epoch: int, end_offset: int) -> bool:
        """Whether this log has the records below `end_offset` that the leader of `leader_epoch` had, the last of them
        written in that epoch (-1: there are none), and can be read on from there. Raises StateLogFailed."""


class StateLogs(Protocol):
    async def get(self, topic_id: bytes, topic: str, partition: int) -> StateLog:
        """The log, which from now on is the only one that takes appends. Each append of an earlier one is in the log,
        or never will be. `load_end_offset` includes all acknowledged records: the high watermark may have to be waited
        for, unless too few replicas are in sync. Raises StateLogFailed."""
