"""An append on its way, as its caller sees it: what it came to, and how long it holds memory and is waited for."""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

from engine.errors import EngineError


class AppendResult(NamedTuple):
    """Where a batch went. `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Settleable(Protocol):
    """On its way, or settled, once. What is not settled calls back when it is; that neither waits nor raises."""

    @property
    def is_settled(self) -> bool: ...
    def call_when_settled(self, callback: Callable[[], None]) -> None: ...


class PendingAppend(Settleable, Protocol):
    """An append on its way. Settled: `wait` returns or raises at once."""

    @property
    def outcome(self) -> AppendResult | EngineError:
        """Of a settled append."""

    @property
    def is_released(self) -> bool:
        """Whether the engine has let go of the records' memory: when they are written, before other replicas are waited
        for, and at the latest when it is settled."""

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once, when the records of one that is not released are; it must not raise. One
        callback an append."""

    def stop_waiting(self) -> None:
        """The request has timed out, or its connection is closed: no reply depends on other replicas any more. The
        batch stays in the log and in its producer's state, so that a retry is a duplicate."""

    async def wait(self) -> AppendResult:
        """Wait until the acks asked for are given. Raises `engine.errors`.

        The deadline is the caller's (a cancel scope); giving up does not take the batch back. One task at a time.
        """


class WaitingAppends(NamedTuple):
    """Appends that wait for other replicas, the bytes of their batches in the log, and since when the oldest waits, on
    trio's clock."""

    appends: int = 0
    size_bytes: int = 0
    since_s: float = inf

    def beside(self, other: "WaitingAppends") -> "WaitingAppends":
        """Both together."""
        appends, size_bytes = self.appends + other.appends, self.size_bytes + other.size_bytes
        return WaitingAppends(appends, size_bytes, min(self.since_s, other.since_s))
