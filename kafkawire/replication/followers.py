"""The links over which other brokers fetch, and as of when each of them shows what its broker knew (RULES K24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, finalize

from engine.replication.confirmations import Confirmation
from kafkawire.fetching.link_session import FetchedOver, LinkSession

if TYPE_CHECKING:
    from engine.waiting_reads import WaitingReads
    from kafkawire.wire.connection_info import ConnectionInfo


class _Link(NamedTuple):
    confirmation: Confirmation
    session: LinkSession


class Followers:
    """Of one broker. What an earlier link has shown, the next one does not know. `reads`: those that a Fetch may
    confirm."""

    def __init__(self, reads: WaitingReads) -> None:
        self._clock = reads.clock
        self._reads = reads
        self._links: WeakKeyDictionary[ConnectionInfo, _Link] = WeakKeyDictionary()

    def fetched(self, link: ConnectionInfo) -> FetchedOver:
        """A Fetch has come."""
        confirmation, session = self._of(link)
        confirmation.fetched()
        return FetchedOver(self._clock.boot_ms(), confirmation.as_of, session)

    def responded(self, link: ConnectionInfo) -> None:
        """The response is made, and about to be sent."""
        self._of(link).confirmation.responded(self._clock.next())

    def check_reads(self) -> None:
        """What a Fetch has shown is noted."""
        self._reads.check()

    def _of(self, link: ConnectionInfo) -> _Link:
        found = self._links.get(link)
        if found is None:
            found = self._links[link] = _Link(Confirmation(), LinkSession())
            finalize(link, found.session.close)
        return found
