"""The peer connections over which other brokers fetch, and the time of which each Fetch shows its broker's state
(RULES K24)."""

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
    """The followers' connections to one broker. A new connection begins without the times of an earlier one. `reads`:
    the waiting reads that a Fetch may confirm."""

    def __init__(self, reads: WaitingReads) -> None:
        self._clock = reads.clock
        self._reads = reads
        self._links: WeakKeyDictionary[ConnectionInfo, _Link] = WeakKeyDictionary()

    def fetched(self, link: ConnectionInfo) -> FetchedOver:
        """Note a Fetch, and return the times that it shows and the connection's fetch session."""
        confirmation, session = self._of(link)
        confirmation.fetched()
        return FetchedOver(self._clock.boot_ms(), confirmation.as_of, session)

    def responded(self, link: ConnectionInfo) -> None:
        """Note that the response is complete and about to be sent."""
        self._of(link).confirmation.responded(self._clock.next())

    def check_reads(self) -> None:
        """Check the waiting reads, after the times of a Fetch are noted."""
        self._reads.check()

    def _of(self, link: ConnectionInfo) -> _Link:
        found = self._links.get(link)
        if found is None:
            found = self._links[link] = _Link(Confirmation(), LinkSession())
            finalize(link, found.session.close)
        return found
