"""What the handlers of transactions share: what older clients are told instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coordinator.errors import CoordinatorError, TransactionAbortable
from coordinator.transactions.api import Partition
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.api import Pending
    from coordinator.groups.api import GroupService

OFFSETS_TOPIC: Final = "__consumer_offsets"


def partition_of_group(groups: GroupService, group_id: str) -> Partition:
    """Where its offsets are."""
    return Partition(OFFSETS_TOPIC, groups.partition_of(group_id))


def code_of_transaction(pending: Pending[Any], *, knows_fenced: bool) -> ErrorCode:
    """How a settled answer went. Who does not know PRODUCER_FENCED (KIP-360) is told INVALID_PRODUCER_EPOCH."""
    try:
        pending.result()
    except CoordinatorError as error:
        return code_of_refusal(error, knows_fenced=knows_fenced)
    return ErrorCode.NONE


def code_of_refusal(error: CoordinatorError, *, knows_fenced: bool) -> ErrorCode:
    """See `code_of_transaction`."""
    code = error_code_of(error)
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def code_of_unverified(error: CoordinatorError, *, knows_abortable: bool) -> ErrorCode:
    """Why something may not be written in a transaction. Who does not know TRANSACTION_ABORTABLE (KIP-890) is told
    INVALID_TXN_STATE; whoever writes expects INVALID_PRODUCER_EPOCH (AddPartitionsToTxnManager)."""
    code = code_of_refusal(error, knows_fenced=False)
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Verified:
    """That a transaction has the one partition that was asked for; a `coordinator.api.Pending`."""

    __slots__ = ("_verifying",)

    def __init__(self, verifying: Pending[list[bool]]) -> None:
        self._verifying = verifying

    @property
    def is_settled(self) -> bool:
        return self._verifying.is_settled

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._verifying.call_when_settled(callback)

    def result(self) -> None:
        """Raises CoordinatorError."""
        if not all(self._verifying.result()):
            raise TransactionAbortable("the transaction does not have the partition")


@dataclass(slots=True)
class TransactionRules:
    """What may be changed while the broker runs. `verifies_partitions`: transaction.partition.verification.enable, of
    producers that add partitions by themselves."""

    verifies_partitions: bool = True
