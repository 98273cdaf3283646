"""What was asked of other brokers and may be executed still, though there is no answer.

Asked again of the *same* broker that does no harm: it goes by a newer link, and nothing that comes by an older one is
executed from then on (RULES K23). Of *another* broker it is asked again only when the link to the one before is over,
or that one is another registration.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from kafkawire.links.errors import SentBy
    from kafkawire.links.links import Links

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(slots=True)
class _Tries:
    """At one broker. `open`: those that are not answered; `sent_by`: the last link that one of them was lost with."""

    broker_id: int
    open: int = 0
    sent_by: SentBy | None = None


class Doubts(Generic[KeyT]):
    """By what was asked."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._tries: dict[KeyT, _Tries] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def may_ask(self, key: KeyT, broker_id: int) -> bool:
        """Whether no broker but this one may execute it still. If one may, it is seen to that it soon may not."""
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

    def asked(self, key: KeyT, broker_id: int) -> None:
        """Of that broker, which it may be asked of."""
        self._tries.setdefault(key, _Tries(broker_id)).open += 1

    def answered(self, key: KeyT) -> None:
        """Whatever was lost before went by an older link, which is over."""
        tries = self._tries[key]
        tries.open -= 1
        tries.sent_by = None
        if not tries.open:
            del self._tries[key]

    def lost(self, key: KeyT, sent_by: SentBy | None) -> None:
        """There will be no answer; None: it has never left."""
        tries = self._tries[key]
        tries.open -= 1
        tries.sent_by = sent_by or tries.sent_by
        if not tries.open and tries.sent_by is None:
            del self._tries[key]

    def sweep(self) -> None:
        """Forgets what nobody asks about any more, and is over."""
        for key, tries in list(self._tries.items()):
            if not tries.open and tries.sent_by is not None and self._links.is_over(tries.sent_by):
                del self._tries[key]
