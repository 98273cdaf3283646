"""Shared by the handlers of transactions: error codes for older clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coordinator.errors import CoordinatorError, TransactionAbortable
from coordinator.transactions.api import Partition
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.api import Future
    from coordinator.groups.api import GroupService

OFFSETS_TOPIC: Final = "__consumer_offsets"


def partition_of_group(groups: GroupService, group_id: str) -> Partition:
    """Partition of `__consumer_offsets` that has the group's offsets."""
    return Partition(OFFSETS_TOPIC, groups.partition_of(group_id))


def code_of_transaction(pending: Future[Any], *, knows_fenced: bool) -> ErrorCode:
    """Error code of a settled future. A client without PRODUCER_FENCED (KIP-360) gets INVALID_PRODUCER_EPOCH."""
    try:
        pending.result()
    except CoordinatorError as error:
        return code_of_refusal(error, knows_fenced=knows_fenced)
    return ErrorCode.NONE


def code_of_refusal(error: CoordinatorError, *, knows_fenced: bool) -> ErrorCode:
    """Error code of a refusal; see `code_of_transaction`."""
    code = error_code_of(error)
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def code_of_unverified(error: CoordinatorError, *, knows_abortable: bool) -> ErrorCode:
    """Error code for an append that may not be part of the transaction.

    A client without TRANSACTION_ABORTABLE (KIP-890) gets INVALID_TXN_STATE. Producers expect INVALID_PRODUCER_EPOCH
    (AddPartitionsToTxnManager).
    """
    code = code_of_refusal(error, knows_fenced=False)
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Verified:
    """Verification of one partition in a transaction; a `coordinator.api.Future`."""

    __slots__ = ("_verifying",)

    def __init__(self, verifying: Future[list[bool]]) -> None:
        self._verifying = verifying

    @property
    def is_settled(self) -> bool:
        return self._verifying.is_settled

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        self._verifying.call_when_settled(callback)

    def result(self) -> None:
        """Raises CoordinatorError, also if the transaction lacks the partition."""
        if not all(self._verifying.result()):
            raise TransactionAbortable("the transaction does not have the partition")


@dataclass(slots=True)
class TransactionRules:
    """Configs that may change at run time.

    `verifies_partitions`: transaction.partition.verification.enable, for producers that add partitions themselves.
    """

    verifies_partitions: bool = True
