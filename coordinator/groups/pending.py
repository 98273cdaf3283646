"""An answer on its way to whoever asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from coordinator.errors import GroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
_OPEN = object()


class Answer(Generic[T]):
    """A `coordinator.groups.api.Pending`; settled once, with a GroupError for a refusal."""

    __slots__ = ("_callbacks", "_outcome")

    def __init__(self) -> None:
        self._outcome: object = _OPEN
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_settled(self) -> bool:
        """See `Pending`."""
        return self._outcome is not _OPEN

    @property
    def outcome(self) -> object:
        """Of one that is settled."""
        return self._outcome

    def settle(self, outcome: object) -> None:
        """A second time has no effect: the group may be gone while the answer is held back."""
        if self._outcome is not _OPEN:
            return
        self._outcome = outcome
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """See `Pending`."""
        self._callbacks.append(callback)

    def result(self) -> T:
        """See `Pending`."""
        assert self._outcome is not _OPEN
        if isinstance(self._outcome, GroupError):
            raise self._outcome
        return self._outcome  # type: ignore[return-value]  # the table answers each command with its kind

    async def wait(self) -> T:
        """See `Pending`."""
        if not self.is_settled:
            settled = trio.Event()
            self.call_when_settled(settled.set)
            await settled.wait()
        return self.result()


def settled(outcome: object) -> Answer[object]:
    """One that waits for nothing."""
    answer = Answer[object]()
    answer.settle(outcome)
    return answer


def after_all(answers: Sequence[Answer[object]], outcome: object) -> Answer[object]:
    """Settled with `outcome` when all of these are, or with the first error of theirs."""
    joint = Answer[object]()
    left = [answer for answer in answers if not answer.is_settled]
    count = len(left)

    def one_settled() -> None:
        nonlocal count
        count -= 1
        if count <= 0:
            joint.settle(next((one.outcome for one in answers if isinstance(one.outcome, GroupError)), outcome))

    for answer in left:
        answer.call_when_settled(one_settled)
    if not left:
        one_settled()
    return joint
