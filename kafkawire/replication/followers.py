"""The links over which other brokers fetch, and as of when each of them shows what its broker knew (RULES K24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary, finalize

from engine.replication.confirmations import Confirmation
from kafkawire.fetching.link_session import FetchedOver, LinkSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.wire.connection_info import ConnectionInfo


class _Link(NamedTuple):
    confirmation: Confirmation
    session: LinkSession


class Followers:
    """Of one broker. What an earlier link has shown, the next one does not know. `boot_ms`: see `Surroundings`."""

    def __init__(self, boot_ms: Callable[[], int]) -> None:
        self._boot_ms = boot_ms
        self._links: WeakKeyDictionary[ConnectionInfo, _Link] = WeakKeyDictionary()

    def fetched(self, link: ConnectionInfo) -> FetchedOver:
        """A Fetch has come."""
        confirmation, session = self._of(link)
        confirmation.fetched()
        return FetchedOver(self._boot_ms(), confirmation.as_of_ms, session)

    def responded(self, link: ConnectionInfo) -> None:
        """The response is made, and about to be sent."""
        self._of(link).confirmation.responded(self._boot_ms())

    def _of(self, link: ConnectionInfo) -> _Link:
        found = self._links.get(link)
        if found is None:
            found = self._links[link] = _Link(Confirmation(), LinkSession())
            finalize(link, found.session.close)
        return found
