"""Updates of the ISRs of the partitions that this broker leads: it writes them into the metadata itself (RULES K4).

A proposal refers to the published image, and the write fails if there is a newer image by then. The next image shows
the outcome; until then the proposal stays the same (RULES K5). All proposals of a moment are one write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import structlog
import trio

from coordinator.controller.isr_proposals import IsrChange
from coordinator.errors import MetadataUnavailable
from coordinator.event_log import EventLog, Kind
from engine.errors import EngineError
from kafkawire.replication.committed import committed_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from coordinator.api import ClusterImage
    from engine.api import TopicIdPartition
    from engine.store import SegmentStore
    from kafkawire.requests.metrics import ReplicationCounters

BATCH_MS: Final = 50  # between two writes
RETRY_MS: Final = 500  # until a write is tried again whose outcome is unknown

PROPOSED: Final = Kind("isr change proposed", "isr changes proposed")

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class IsrWriter(Protocol):
    """The part of the control plane that leaders use; implemented by `coordinator.cluster_manager.ClusterManager`."""

    @property
    def image(self) -> ClusterImage: ...
    async def wait_for_image_after(self, version: int) -> ClusterImage: ...
    async def change_isr(self, version: int, changes: Sequence[IsrChange]) -> None: ...


class IsrUpdater:
    """The task that updates ISRs; the caller runs `run` in a task."""

    def __init__(self, cluster: IsrWriter, store: SegmentStore, lag_max_ms: int, counters: ReplicationCounters) -> None:
        self._cluster = cluster
        self._store = store
        self._lag_max_ms = lag_max_ms
        self._counters = counters
        self._led: dict[TopicIdPartition, int] = {}  # the size of the committed ISR of each led partition
        self._noted: dict[TopicIdPartition, None] = {}  # a dict keeps the order: simulations must repeat
        self._has_noted = trio.Event()
        self._lines = EventLog(_log)

    def lead(self, partition: TopicIdPartition) -> None:
        """Note that this broker leads the partition, or that the metadata of its replicas have changed."""
        self._learn(partition, self._cluster.image)
        self.note([partition])

    def leave(self, partition: TopicIdPartition) -> None:
        """Note that this broker does not lead the partition any more."""
        self._led.pop(partition, None)

    def relearn_all(self) -> None:
        """Learn the replica states of all led partitions again, because brokers, broker epochs or the default of
        min.insync.replicas have changed."""
        for partition in [*self._led]:
            self.lead(partition)

    def note(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Check soon whether the ISRs of these partitions have to change."""
        self._noted |= dict.fromkeys(partitions)
        self._has_noted.set()

    async def run(self) -> None:
        """Serve for as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while True:
                await self._has_noted.wait()
                await self._write()
                await trio.sleep(BATCH_MS / 1000)

    async def _watch(self) -> None:
        """Check all ISRs at intervals, because no event tells that a follower has become late."""
        while True:
            await trio.sleep(self._lag_max_ms / 2000)
            self.note(self._led)

    async def _write(self) -> None:
        image = self._cluster.image
        noted, self._noted, self._has_noted = self._noted, {}, trio.Event()
        changes = {one: change for one in noted if (change := self._wanted(one, image)) is not None}
        if not changes:
            return
        self._lines.write(PROPOSED, [*changes.items()], _fields)
        try:
            await self._cluster.change_isr(image.version, [*changes.values()])
        except MetadataUnavailable as error:
            _log.warning("isr changes not written", count=len(changes), reason=str(error))
        with trio.move_on_after(RETRY_MS / 1000):
            await self._cluster.wait_for_image_after(image.version)
        self.note(changes)

    def _wanted(self, partition: TopicIdPartition, image: ClusterImage) -> IsrChange | None:
        """The ISR change that the leader wants; None if there is none, or this broker does not lead."""
        if partition not in self._led:
            return None
        self._learn(partition, image)
        try:
            log = self._store.get(partition)
            proposal = log.followers.propose()
        except EngineError:
            return None
        if proposal is None:
            return None
        at = partition.topic_id, partition.partition, log.leader_epoch
        return IsrChange(*at, proposal.in_sync, proposal.added)

    def _learn(self, partition: TopicIdPartition, image: ClusterImage) -> None:
        """Give the leader the replica states of the image. The partition may be gone, or led by another broker, by
        then."""
        topic = image.topics_by_id.get(partition.topic_id)
        if topic is None or partition.partition >= len(topic.partitions):
            return
        state = topic.partitions[partition.partition]
        self._count(partition, len(state.isr))
        try:
            log = self._store.get(partition)
            log.followers.learn(committed_of(image, partition.topic_id, state))
        except EngineError:
            return

    def _count(self, partition: TopicIdPartition, size: int) -> None:
        before = self._led.get(partition, size)
        self._counters.isr_shrinks += size < before
        self._counters.isr_expands += size > before
        self._led[partition] = size


def _fields(proposed: tuple[TopicIdPartition, IsrChange]) -> dict[str, object]:
    partition, change = proposed
    place = {"topic": partition.topic, "partition": partition.partition}
    return {**place, "epoch": change.leader_epoch, "isr": sorted(change.in_sync)}
