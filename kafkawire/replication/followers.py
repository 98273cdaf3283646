"""The links over which other brokers fetch, and as of when each of them shows what its broker knew (RULES K24)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from engine.replication.confirmations import Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkawire.wire.connection import ConnectionInfo


class Followers:
    """Of one broker. What an earlier link has shown, the next one does not know. `boot_ms`: see `Surroundings`."""

    def __init__(self, boot_ms: Callable[[], int]) -> None:
        self._boot_ms = boot_ms
        self._links: WeakKeyDictionary[ConnectionInfo, Confirmation] = WeakKeyDictionary()

    def fetched(self, link: ConnectionInfo) -> int:
        """A Fetch has come: as of when it shows what its broker knew."""
        confirmation = self._links.setdefault(link, Confirmation())
        confirmation.fetched()
        return confirmation.as_of_ms

    def responded(self, link: ConnectionInfo) -> None:
        """The response is made, and about to be sent."""
        self._links.setdefault(link, Confirmation()).responded(self._boot_ms())
