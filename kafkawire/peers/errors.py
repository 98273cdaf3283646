"""Failures of requests to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from kafkawire.security.link_claim import LinkNumber


class SentBy(NamedTuple):
    """The connection on which a request left. Whether it was executed, or still will be, is unknown."""

    broker_id: int
    incarnation: bytes
    purpose: str
    number: LinkNumber


class LinkFailed(CoordinatorError):
    """There is no reply: the other broker is away or silent, or could not be asked. `sent_by` is None if the request
    has never left; such a request is never executed."""

    def __init__(self, reason: str, sent_by: SentBy | None = None) -> None:
        super().__init__(reason)
        self.sent_by = sent_by
