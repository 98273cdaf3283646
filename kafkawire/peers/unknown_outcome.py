"""Requests to other brokers with an unknown outcome: they have no reply, and may still be executed.

A repeated request to the *same* broker does no harm: it uses a newer connection, and from then on that broker executes
nothing that comes over an older one (RULES K23). Before the request is sent to *another* broker, the connection to the
first one has to be over, or that broker has to have registered again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from kafkawire.peers.errors import SentBy
    from kafkawire.peers.peers import Peers

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(slots=True)
class _Tries:
    """The tries at one broker. `open`: the count of requests without a reply; `sent_by`: the connection that was lost
    last with such a request."""

    broker_id: int
    open: int = 0
    sent_by: SentBy | None = None


class UnknownOutcomes(Generic[KeyT]):
    """Requests with an unknown outcome, by a key that tells their content."""

    def __init__(self, links: Peers) -> None:
        self._links = links
        self._tries: dict[KeyT, _Tries] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def may_ask(self, key: KeyT, broker_id: int) -> bool:
        """Whether no broker except this one may still execute the request. If another one may, a new connection to it
        is opened, which rules that out soon."""
        tries = self._tries.get(key)
        if tries is None or tries.broker_id == broker_id:
            return True
        if tries.sent_by is not None and not self._links.is_over(tries.sent_by):
            self._links.renew(tries.sent_by)
            return False
        if tries.open:
            return False
        del self._tries[key]
        return True

    def note_request(self, key: KeyT, broker_id: int) -> None:
        """Note a request to a broker to which it may be sent."""
        self._tries.setdefault(key, _Tries(broker_id)).open += 1

    def note_reply(self, key: KeyT) -> None:
        """Note a reply. Earlier lost requests used an older connection, which is over."""
        tries = self._tries[key]
        tries.open -= 1
        tries.sent_by = None
        if not tries.open:
            del self._tries[key]

    def note_lost(self, key: KeyT, sent_by: SentBy | None) -> None:
        """Note that there will be no reply. `sent_by`: None if the request has never left."""
        tries = self._tries[key]
        tries.open -= 1
        tries.sent_by = sent_by or tries.sent_by
        if not tries.open and tries.sent_by is None:
            del self._tries[key]

    def sweep(self) -> None:
        """Forget the requests that cannot be executed any more."""
        for key, tries in list(self._tries.items()):
            if not tries.open and tries.sent_by is not None and self._links.is_over(tries.sent_by):
                del self._tries[key]
