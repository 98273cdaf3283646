"""What another broker fetches over one link, remembered between its requests (KIP-227). It ends with the link.

There is one at a time, and nobody else can name it: it needs neither a number of its own nor a place in a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from engine.replica_log import AsOf, Standing
from kafkawire.fetching.sessions import LAST_EPOCH, FetchSession, FetchTarget, TargetWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a follower asks for by, and a leader that remembers answers with. One that does not has another, or none.
LINK_SESSION_ID: Final = 1


class LinkSession:
    """Of one link. `standing`: when what was not named again was asked last."""

    __slots__ = ("_session", "standing")

    def __init__(self) -> None:
        self._session: FetchSession | None = None
        self.standing = Standing()

    def begin(self, targets: Iterable[FetchTarget], watch: TargetWatch) -> FetchSession:
        """A new one, of these, that owns `watch`."""
        self.close()
        self.standing = Standing()
        self._session = FetchSession(LINK_SESSION_ID, targets, watch, by_id=True, now_ms=0)
        return self._session

    def resume(self, epoch: int) -> FetchSession | None:
        """The one that goes on with this epoch, if it is so far, and nobody waits for what it brings."""
        session = self._session
        if session is None or session.busy or session.epoch != epoch:
            return None
        session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
        return session

    def close(self) -> None:
        """Nothing is watched for it any more."""
        if self._session is not None:
            self._session.close()


class FetchedOver(NamedTuple):
    """A Fetch that has come over a link at a moment, and as of when it shows what its broker knew."""

    at_ms: int
    as_of: AsOf
    session: LinkSession
