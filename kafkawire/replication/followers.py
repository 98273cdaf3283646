"""The peer connections over which other brokers fetch, and the time of which each Fetch shows its broker's state
(RULES K24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, finalize

from engine.replication.confirmations import Confirmation
from kafkawire.fetching.link_session import LinkSession, PeerFetch

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

    def note_fetch(self, link: ConnectionInfo) -> PeerFetch:
        """Note a Fetch, and return the times that it shows and the connection's fetch session."""
        confirmation, session = self._link_of(link)
        confirmation.fetched()
        return PeerFetch(self._clock.boot_ms(), confirmation.as_of, session)

    def note_response(self, link: ConnectionInfo) -> None:
        """Note that the response is complete and about to be sent."""
        self._link_of(link).confirmation.responded(self._clock.next())

    def check_reads(self) -> None:
        """Check the waiting reads, after the times of a Fetch are noted."""
        self._reads.check()

    def _link_of(self, link: ConnectionInfo) -> _Link:
        found = self._links.get(link)
        if found is None:
            found = self._links[link] = _Link(Confirmation(), LinkSession())
            finalize(link, found.session.close)
        return found
