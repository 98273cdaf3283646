"""Logs of this broker that are about to be discarded: that waits until the cluster knows (RULES K8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import trio

from coordinator.errors import NotFollowedSo
from coordinator.membership.lost_replicas import restart_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coordinator.api import BrokerInfo, ClusterImage
    from coordinator.metadata_store.store import Operation


class Followed(NamedTuple):
    """A partition as this broker follows it."""

    topic_id: bytes
    partition: int
    leader_epoch: int


@dataclass(slots=True)
class _Wish:
    offset: int
    settled: trio.Event = field(default_factory=trio.Event)
    is_told: bool = False


class RestartingReplicas:
    """The discards that wait. `wake`: have `to_write` called."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._wishes: dict[Followed, _Wish] = {}

    async def tell(self, followed: Followed, offset: int) -> None:
        """Return when it is written that this replica may lack acknowledged records, as its log is to begin at that
        offset; wait as long as the metadata are away. Raises NotFollowedSo."""
        assert followed not in self._wishes, "there is one question at a time"
        wish = self._wishes[followed] = _Wish(offset)
        self._wake()
        try:
            await wish.settled.wait()
        finally:
            if self._wishes.get(followed) is wish:
                del self._wishes[followed]
        if not wish.is_told:
            raise NotFollowedSo

    def to_write(self, image: ClusterImage, me: BrokerInfo) -> dict[Followed, Operation]:
        """The operations for all discards that wait; a discard that must not be any more waits no longer."""
        found = {one: restart_operations(image, *one, wish.offset, me) for one, wish in self._wishes.items()}
        self._settle([one for one, operation in found.items() if operation is None], is_told=False)
        return {one: operation for one, operation in found.items() if operation is not None}

    def written(self, told: Iterable[Followed]) -> None:
        """The operations for these partitions are written."""
        self._settle(told, is_told=True)

    def _settle(self, which: Iterable[Followed], *, is_told: bool) -> None:
        for followed in which:
            if (wish := self._wishes.pop(followed, None)) is not None:
                wish.is_told = is_told
                wish.settled.set()
