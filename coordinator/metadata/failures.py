"""Failures of metadata that cannot be used: each is counted, logged once, and tried again with back-off (RULES M2).

A node that is missing, malformed or forbidden must not end a running broker: all brokers read the same nodes, so one
bad node would end all of them at once, and every restart.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import structlog
import trio

from coordinator.errors import CannotStart, MetadataRolledBack, MetadataUnavailable
from coordinator.metadata_store.store import ConnectionLost, NoNode, NotAllowed, SessionLost, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = structlog.get_logger(__name__)

# Errors of a task that reads or writes metadata, when they cannot be used. SessionLost is one of them, and is handled
# before: the broker registers anew.
UNUSABLE: Final = (StoreError, MetadataUnavailable, CannotStart)
PAUSE_S: Final = 0.5  # before the first retry, and before each while the connection is lost
PAUSE_MAX_S: Final = 10.0  # a node that is repaired is noticed within this time

UNAVAILABLE: Final = "unavailable"
REASONS: Final[Mapping[type[Exception], str]] = {
    ConnectionLost: UNAVAILABLE,
    SessionLost: UNAVAILABLE,
    MetadataUnavailable: UNAVAILABLE,
    NoNode: "missing",
    NotAllowed: "not_allowed",
    MetadataRolledBack: "rolled_back",
    CannotStart: "malformed",
    StoreError: "other",
}


class MetadataFailures:
    """The failures of one broker by reason, since its start."""

    def __init__(self) -> None:
        self._counts = Counter(dict.fromkeys(REASONS.values(), 0))
        self._standing: dict[str, str] = {}

    @property
    def standing(self) -> Sequence[str]:
        """The present failures, each once."""
        return sorted({*self._standing.values()})

    def record_attempt(self, task: str, error: Exception | None) -> None:
        """Record the failure of a task's last attempt, or that it did not fail."""
        self._standing.pop(task, None)
        if error is not None:
            self._standing[task] = f"metadata cannot be used: {described(error)}"

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of failures by reason; every reason is there."""
        return self._counts

    def note(self, error: Exception) -> str:
        """Count a failure; return its reason."""
        reason = reason_of(error)
        self._counts[reason] += 1
        return reason

    def refusal(self, error: StoreError | CannotStart) -> MetadataUnavailable:
        """The error for a requester when metadata cannot be used; counts the failure."""
        self.note(error)
        return MetadataUnavailable(f"The metadata cannot be used: {described(error)}.")


class Attempts:
    """The attempts of one task: a failure is logged when it is new, and not again while it stays the same."""

    def __init__(self, failures: MetadataFailures, task: str) -> None:
        self._failures = failures
        self._task = task
        self._logged: str | None = None
        self._pause_s = PAUSE_S

    async def pause(self, error: Exception) -> None:
        """Log and count a failure, then wait before the next attempt."""
        reason, description = self._failures.note(error), described(error)
        self._failures.record_attempt(self._task, None if reason == UNAVAILABLE else error)  # its age tells of that
        if description != self._logged:
            log.error("metadata unusable", task=self._task, reason=reason, error=description)
            self._logged, self._pause_s = description, PAUSE_S
        elif reason != UNAVAILABLE:
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        await trio.sleep(self._pause_s)

    def succeeded(self) -> None:
        """Note an attempt without a failure."""
        if self._logged is not None:
            log.info("metadata usable again", task=self._task)
            self._failures.record_attempt(self._task, None)
        self._logged, self._pause_s = None, PAUSE_S


def reason_of(error: Exception) -> str:
    """The reason by which a failure is counted."""
    return next(reason for kind, reason in REASONS.items() if isinstance(error, kind))


def described(error: Exception) -> str:
    """The failure in a few words, with the node if it is known."""
    match error:
        case NoNode():
            return f"the metadata node {error.path or '/'} is missing"
        case NotAllowed():
            return f"the metadata node {error.path or '/'} may not be read or written"
        case ConnectionLost() | SessionLost():
            return "the metadata store does not answer"
        case StoreError():
            return repr(error)
        case _:
            return str(error)
