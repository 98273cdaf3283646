"""Logs of this broker that are about to be discarded: that waits until the cluster knows (RULES K8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import trio

from coordinator.errors import NotFollowedInEpoch
from coordinator.membership.lost_replicas import restart_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coordinator.api import BrokerInfo, ClusterImage
    from coordinator.metadata_store.store import Operation


class FollowedReplica(NamedTuple):
    """A partition as this broker follows it."""

    topic_id: bytes
    partition: int
    leader_epoch: int


@dataclass(slots=True)
class _Restart:
    offset: int
    settled: trio.Event = field(default_factory=trio.Event)
    is_recorded: bool = False


class RestartingReplicas:
    """The discards that wait. `wake`: have `to_write` called."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._restarts: dict[FollowedReplica, _Restart] = {}

    async def record(self, followed: FollowedReplica, offset: int) -> None:
        """Return when it is written that this replica may lack acknowledged records, as its log is to begin at that
        offset; wait as long as the metadata are away. Raises NotFollowedInEpoch."""
        assert followed not in self._restarts, "there is one question at a time"
        restart = self._restarts[followed] = _Restart(offset)
        self._wake()
        try:
            await restart.settled.wait()
        finally:
            if self._restarts.get(followed) is restart:
                del self._restarts[followed]
        if not restart.is_recorded:
            raise NotFollowedInEpoch

    def to_write(self, image: ClusterImage, me: BrokerInfo) -> dict[FollowedReplica, Operation]:
        """The operations for all discards that wait; a discard that must not be any more waits no longer."""
        found = {one: restart_operations(image, *one, restart.offset, me) for one, restart in self._restarts.items()}
        self._settle([one for one, operation in found.items() if operation is None], is_recorded=False)
        return {one: operation for one, operation in found.items() if operation is not None}

    def written(self, recorded: Iterable[FollowedReplica]) -> None:
        """The operations for these partitions are written."""
        self._settle(recorded, is_recorded=True)

    def _settle(self, partitions: Iterable[FollowedReplica], *, is_recorded: bool) -> None:
        for followed in partitions:
            if (restart := self._restarts.pop(followed, None)) is not None:
                restart.is_recorded = is_recorded
                restart.settled.set()
