"""A pending append, as its caller sees it: its result, the release of its memory, and the wait for replicas."""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

from engine.errors import EngineError


class AppendResult(NamedTuple):
    """Offsets of an appended batch. `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class AnyFuture(Protocol):
    """A future of any result: pending, or settled from the beginning; settled once.

    `call_when_settled` may be used only before it is settled; the callback must neither wait nor raise.
    """

    @property
    def is_settled(self) -> bool: ...
    def call_when_settled(self, callback: Callable[[], None]) -> None: ...


class PendingAppend(AnyFuture, Protocol):
    """A future of an append. After it is settled, `wait` returns or raises at once."""

    @property
    def outcome(self) -> AppendResult | EngineError:
        """Result or error of a settled append."""

    @property
    def is_released(self) -> bool:
        """Whether the engine has released the memory of the records: after they are written, before it waits for other
        replicas, and at the latest when the append is settled."""

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the records are released; only for an append that is not released yet.

        One callback for each append; it must not raise.
        """

    def stop_waiting(self) -> None:
        """End the wait for other replicas, after the request has timed out or its connection is closed.

        The batch stays in the log and in its producer's state, so that a retry is a duplicate.
        """

    async def wait(self) -> AppendResult:
        """Wait for the requested acks, and return the result. Raises the classes of `engine.errors`.

        The deadline is the caller's (a cancel scope); giving up does not take the batch back. One task at a time.
        """


class WaitingAppends(NamedTuple):
    """Number of the appends that wait for other replicas, bytes of their batches in the log, and the time on trio's
    clock since which the oldest one waits (inf: none)."""

    appends: int = 0
    size_bytes: int = 0
    since_s: float = inf

    def plus(self, other: "WaitingAppends") -> "WaitingAppends":
        """The sum of both, with the earlier time."""
        appends, size_bytes = self.appends + other.appends, self.size_bytes + other.size_bytes
        return WaitingAppends(appends, size_bytes, min(self.since_s, other.since_s))
