"""What the handlers of transactions share: what older clients are told instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.errors import CoordinatorError
from kafkawire.requests.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from coordinator.api import Pending


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
