"""How a request to another broker fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from kafkawire.security.link_claim import LinkNumber


class SentBy(NamedTuple):
    """The link that something has left by: whether it was executed is not known, nor whether it still will be."""

    broker_id: int
    incarnation: bytes
    purpose: str
    number: LinkNumber


class LinkFailed(CoordinatorError):
    """There is no answer: the other broker is away, or silent, or cannot be asked. `sent_by` is None for a request that
    has never left: it is not executed, ever."""

    def __init__(self, reason: str, sent_by: SentBy | None = None) -> None:
        super().__init__(reason)
        self.sent_by = sent_by
