"""Faults of requests to an object store, and the kind of a request. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from compat_tests.features.object_stores.gate import Gate


class Fault(Enum):
    """Faults of a request. `*_LOST` and `*_CUT` close the client's connection; so do the two that come later."""

    NONE = "none"
    SLOW_DOWN = "503"
    CONFLICT = "409"
    SKEWED = "403: the clock of who asks is wrong"
    REQUEST_LOST = "the server hears nothing of it"
    REQUEST_CUT = "the server hears half of it"
    REPLY_LOST = "the server has done it"
    LATE = "the server does it later"
    AFTER_DELETE = "the server does it when somebody has deleted that key"
    SHORT_BODY = "half of what was read, then the end"
    STALLED_BODY = "half of what was read, then nothing"
    FLIPPED_BODY = "one bit of what was read is wrong"
    STALE_LIST = "a listing is what it was the last time"
    UNCONDITIONAL = "a condition is ignored"


ANSWERS = {
    Fault.SLOW_DOWN: (503, b"SlowDown"),
    Fault.CONFLICT: (409, b"ConditionalRequestConflict"),
    Fault.SKEWED: (403, b"RequestTimeTooSkewed"),
}
COMES_LATER = (Fault.LATE, Fault.AFTER_DELETE)
OF_WHAT_WAS_READ = (Fault.SHORT_BODY, Fault.STALLED_BODY, Fault.FLIPPED_BODY)


class StoreRequest(NamedTuple):
    """A request. A listing is a LIST of its prefix; `number` counts the requests of the same kind."""

    method: str
    key: str
    number: int

    @property
    def kind(self) -> str:
        return kind_of(self.method, self.key)


def kind_of(method: str, key: str) -> str:
    """The kind of a request: method and type of the object, as in docs/formats/tier.md: `PUT manifest`, `LIST
    manifest`."""
    folder = key.rpartition("/")[0].rpartition("/")[2]
    return f"{method} {folder if folder in ('manifest', 'page', 'collected', 'probe', 'owner') else 'segment'}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The fault of a request. `delay_s`: how late LATE is, or the delay before anything else happens, in seconds. A
    request that is lost or cut waits at the `gate`, after all that the server is to get of it."""

    fault: Fault = Fault.NONE
    delay_s: float = 0.0
    gate: Gate | None = None


NO_FAULT = Decision()


class Planner(Protocol):
    def decide(self, request: StoreRequest) -> Decision:
        """Decide about the next request, on the proxy's thread."""


@dataclass(frozen=True, slots=True)
class Always:
    """A plan with one decision for all requests: `Always(Decision(delay_s=0.03))` is a store that is far away."""

    decision: Decision = NO_FAULT

    def decide(self, _request: StoreRequest) -> Decision:
        return self.decision
