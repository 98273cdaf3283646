"""Verification or addition of the partitions of a Produce request in its producer's transaction (KIP-890).

From version 12 on, a transaction gets partitions by writes to them: its coordinator adds them before the append. Older
clients add partitions themselves, and the coordinator verifies it. The coordinator is asked once for all partitions of
a request. Error codes by version follow ReplicaManager.handleProduceAppend and AddPartitionsToTxnManager.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from coordinator.errors import (
    ConcurrentTransactions,
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    TransactionAbortable,
)
from coordinator.transactions.api import FIRST_PROTOCOL, SECOND_PROTOCOL, Partition, ProducerIdentity
from engine.errors import EngineError
from kafkawire.requests.errors import ErrorCode
from kafkawire.requests.transactions import code_of_refusal, code_of_unverified

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.api import Future
    from coordinator.transactions.api import TransactionPartitions
    from engine.api import TopicIdPartition

FIRST_VERSION_WITH_ABORTABLE: Final = 11
FIRST_VERSION_THAT_ADDS: Final = 12

_IDENTITY: Final = struct.Struct(">qh")
_IDENTITY_AT: Final = 43
_ATTRIBUTES_AT: Final = 21
_MAGIC_AT: Final = 16
_TRANSACTIONAL: Final = 0x10


def is_transactional(records: memoryview | None) -> bool:
    """Whether the header of the first batch says that it is transactional."""
    return (
        records is not None
        and len(records) > _ATTRIBUTES_AT + 1
        and records[_MAGIC_AT] == 2
        and bool(records[_ATTRIBUTES_AT + 1] & _TRANSACTIONAL)
    )


def producers_of(batches: Iterable[memoryview | None]) -> set[ProducerIdentity]:
    """Producers of the transactional batches."""
    found = set()
    for records in batches:
        if records is not None and is_transactional(records) and len(records) >= _IDENTITY_AT + _IDENTITY.size:
            producer_id, epoch = _IDENTITY.unpack_from(records, _IDENTITY_AT)
            if producer_id >= 0:
                found.add(ProducerIdentity(producer_id, epoch))
    return found


class NotJoined(EngineError):
    """A partition that is not part of the transaction; nothing was appended. `message` is for the client, if any."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class _VerificationFuture:
    """An `engine.api.VerificationFuture`: a future that the answer of the coordinator settles."""

    __slots__ = ("_callback", "is_settled", "partition", "refusal")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.is_settled = False
        self.refusal: EngineError | None = None
        self._callback: Callable[[], None] | None = None

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def settle(self, refusal: EngineError | None) -> None:
        self.is_settled, self.refusal = True, refusal
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class TransactionJoining:
    """An `engine.api.Joining` of one request. Call `send` when all its batches are queued at their partitions."""

    __slots__ = ("_futures", "_producer", "_transactional_id", "_transactions", "_version", "is_enforced", "protocol")

    def __init__(
        self,
        transactions: TransactionPartitions,
        transactional_id: str,
        producer: ProducerIdentity,
        version: int,
        *,
        is_enforced: bool,
    ) -> None:
        """`is_enforced`: transaction.partition.verification.enable."""
        self._transactions = transactions
        self._transactional_id = transactional_id
        self._producer = producer
        self._version = version
        self._futures: list[_VerificationFuture] = []
        self.is_enforced = is_enforced
        self.protocol = SECOND_PROTOCOL if version >= FIRST_VERSION_THAT_ADDS else FIRST_PROTOCOL

    def ask(self, partition: TopicIdPartition) -> _VerificationFuture:
        """See `engine.api.Joining`."""
        future = _VerificationFuture(Partition(partition.topic, partition.partition))
        self._futures.append(future)
        return future

    def send(self) -> None:
        """Ask the coordinator once for all partitions that need it."""
        if not self._futures:
            return
        if self.protocol == FIRST_PROTOCOL and not self.is_enforced:
            self._settle_all(None)  # without verification, but behind waiting batches of the partition
            return
        if not self._transactional_id:
            self._settle_all(NotJoined(ErrorCode.INVALID_REQUEST, None))
            return
        partitions = [one.partition for one in self._futures]
        pending = self._ask(partitions)
        if pending.is_settled:
            self._settle(pending)
        else:
            pending.call_when_settled(lambda: self._settle(pending))

    def _ask(self, partitions: list[Partition]) -> Future[None] | Future[list[bool]]:
        name, transactions = self._transactional_id, self._transactions
        if self.protocol == SECOND_PROTOCOL:
            return transactions.add_partitions(name, self._producer, partitions, protocol=SECOND_PROTOCOL)
        return transactions.verify_partitions(name, self._producer, partitions)

    def _settle(self, pending: Future[None] | Future[list[bool]]) -> None:
        try:
            has = pending.result() or [True] * len(self._futures)
        except CoordinatorError as error:
            self._settle_all(refusal_of(error, self._version))
            return
        for future, is_there in zip(self._futures, has, strict=True):
            future.settle(None if is_there else refusal_of(TransactionAbortable(str(future.partition)), self._version))

    def _settle_all(self, refusal: NotJoined | None) -> None:
        for future in self._futures:
            future.settle(refusal)


def refusal_of(error: CoordinatorError, version: int) -> NotJoined:
    """The refusal for a client of that version: an error that makes it try again, or abort."""
    knows_abortable = version >= FIRST_VERSION_WITH_ABORTABLE
    code = code_of_unverified(error, knows_abortable=knows_abortable)
    if code is ErrorCode.INVALID_TXN_STATE:
        return NotJoined(code, "Partition was not added to the transaction")
    is_away = isinstance(error, (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator))
    if is_away or (isinstance(error, ConcurrentTransactions) and version < FIRST_VERSION_THAT_ADDS):
        cause = code_of_refusal(error, knows_fenced=False)
        return NotJoined(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {cause.name}",
        )
    return NotJoined(code, None)
