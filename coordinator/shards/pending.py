"""Answers on their way to requesters."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar

from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coordinator.api import Pending

T = TypeVar("T")
_OPEN = object()


class Answer(Generic[T]):
    """A `coordinator.api.Pending`; settled once, with a CoordinatorError for a refusal."""

    __slots__ = ("_callback", "outcome")

    def __init__(self) -> None:
        self.outcome: object = _OPEN
        self._callback: Callable[[], None] | None = None

    @property
    def is_settled(self) -> bool:
        """See `Pending`."""
        return self.outcome is not _OPEN

    def settle(self, outcome: object) -> None:
        """Settle the answer. A second time has no effect: a refusal may come while an answer is held back."""
        if self.outcome is not _OPEN:
            return
        self.outcome = outcome
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """See `Pending`."""
        self._callback = callback

    def result(self) -> T:
        """See `Pending`. Raises a copy of an error: the kept one would keep, by its traceback, all callers, in a
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


def settled(outcome: object) -> Answer[object]:
    """An answer that is settled already."""
    answer = Answer[object]()
    answer.settle(outcome)
    return answer


def followed(
    first: Pending[object], then: Callable[[], Answer[object]], otherwise: Callable[[], None]
) -> Answer[object]:
    """An answer that is settled like that of `then`, once `first` went well; with the refusal of `first` if not, after
    `otherwise`."""
    joint = Answer[object]()

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


def after_all(answers: Sequence[Answer[object]], outcome: object) -> Answer[object]:
    """An answer that is settled with `outcome` when all of these are, or with their first error."""
    joint = Answer[object]()
    left = [answer for answer in answers if not answer.is_settled]
    count = len(left)

    def one_settled() -> None:
        nonlocal count
        count -= 1
        if count <= 0:
            joint.settle(next((one.outcome for one in answers if isinstance(one.outcome, CoordinatorError)), outcome))

    for answer in left:
        answer.call_when_settled(one_settled)
    if not left:
        one_settled()
    return joint
