"""Futures of replies: settled by the table that decides, read by the request that waits."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coordinator.api import Future

T = TypeVar("T")
_OPEN = object()


class SettableFuture(Generic[T]):
    """A `coordinator.api.Future`; settled once, with a CoordinatorError for a refusal."""

    __slots__ = ("_callback", "outcome")

    def __init__(self) -> None:
        self.outcome: object = _OPEN
        self._callback: Callable[[], None] | None = None

    @property
    def is_settled(self) -> bool:
        """See `Future`."""
        return self.outcome is not _OPEN

    def settle(self, outcome: object) -> None:
        """Settle the future. A second time has no effect: a refusal may come while a reply is held back."""
        if self.outcome is not _OPEN:
            return
        self.outcome = outcome
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """See `Future`."""
        self._callback = callback

    def result(self) -> T:
        """See `Future`. Raises a copy of an error: the kept one would keep, by its traceback, all callers, in a
        cycle."""
        assert self.outcome is not _OPEN
        if isinstance(self.outcome, CoordinatorError):
            raise _copy_of(self.outcome)
        return self.outcome  # type: ignore[return-value]  # the table answers each command with its kind


def _copy_of(error: CoordinatorError) -> CoordinatorError:
    """A copy of the error with its cause, which `copy` loses. No frame that raises it may have it as a local: that
    would be a cycle."""
    copied = copy(error)
    copied.__cause__ = error.__cause__
    return copied


def settled(outcome: object) -> SettableFuture[object]:
    """A future that is settled already."""
    answer = SettableFuture[object]()
    answer.settle(outcome)
    return answer


def followed(
    first: Future[object], then: Callable[[], SettableFuture[object]], otherwise: Callable[[], None]
) -> SettableFuture[object]:
    """A future that is settled like that of `then`, once `first` went well; with the refusal of `first` if not, after
    `otherwise`."""
    joint = SettableFuture[object]()

    def first_settled() -> None:
        try:
            first.result()
        except CoordinatorError as error:
            otherwise()
            joint.settle(error.with_traceback(None))
            return
        second = then()
        if second.is_settled:
            joint.settle(second.outcome)
        else:
            second.call_when_settled(lambda: joint.settle(second.outcome))

    if first.is_settled:
        first_settled()
    else:
        first.call_when_settled(first_settled)
    return joint


def after_all(futures: Sequence[SettableFuture[object]], outcome: object) -> SettableFuture[object]:
    """An future that is settled with `outcome` when all of these are, or with their first error."""
    joint = SettableFuture[object]()
    unsettled = [future for future in futures if not future.is_settled]
    count = len(unsettled)

    def one_settled() -> None:
        nonlocal count
        count -= 1
        if count <= 0:
            joint.settle(next((one.outcome for one in futures if isinstance(one.outcome, CoordinatorError)), outcome))

    for future in unsettled:
        future.call_when_settled(one_settled)
    if not unsettled:
        one_settled()
    return joint
