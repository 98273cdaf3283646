"""Sees to it that the ISRs of what this broker leads are as their leaders want them: written by itself (RULES K4).

A proposal is made of the image that is published, and written unless there is a newer one by then. What has become of
it the next image tells; until then it is the same proposal (RULES K5). All that is proposed at a moment is one write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import structlog
import trio

from coordinator.cluster.in_sync import IsrChange
from coordinator.errors import MetadataUnavailable
from coordinator.event_log import EventLog, Kind
from engine.errors import EngineError
from kafkawire.replication.committed import committed_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from coordinator.api import ClusterImage
    from engine.api import TopicPartition
    from engine.store import SegmentStore
    from kafkawire.requests.metrics import ReplicationCounters

BATCH_MS: Final = 50  # between two writes
RETRY_MS: Final = 500  # of one whose outcome nobody knows

PROPOSED: Final = Kind("isr change proposed", "isr changes proposed")

_log: FilteringBoundLogger = structlog.get_logger(__name__)


class IsrWriter(Protocol):
    """The control plane, as far as leaders change it; `coordinator.runtime.Coordinator`."""

    @property
    def image(self) -> ClusterImage: ...
    async def wait_for_image_after(self, version: int) -> ClusterImage: ...
    async def change_isr(self, version: int, changes: Sequence[IsrChange]) -> None: ...


class IsrKeeper:
    """Life: `run` in a task."""

    def __init__(self, cluster: IsrWriter, store: SegmentStore, lag_max_ms: int, counters: ReplicationCounters) -> None:
        self._cluster = cluster
        self._store = store
        self._lag_max_ms = lag_max_ms
        self._counters = counters
        self._led: dict[TopicPartition, int] = {}  # with the size of the ISR, as the metadata says
        self._noted: dict[TopicPartition, None] = {}  # a dict keeps the order: simulations must repeat
        self._has_noted = trio.Event()
        self._lines = EventLog(_log)

    def lead(self, partition: TopicPartition) -> None:
        """There are other replicas of it; or the metadata says something else of them than before."""
        self._learn(partition, self._cluster.image)
        self.note([partition])

    def leave(self, partition: TopicPartition) -> None:
        """This broker does not lead it any more."""
        self._led.pop(partition, None)

    def learn_anew(self) -> None:
        """Other brokers live, or in other lives; or min.insync.replicas is another one by default."""
        for partition in [*self._led]:
            self.lead(partition)

    def note(self, partitions: Iterable[TopicPartition]) -> None:
        """Perhaps their ISRs are to be others."""
        self._noted |= dict.fromkeys(partitions)
        self._has_noted.set()

    async def run(self) -> None:
        """For as long as the broker lives."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while True:
                await self._has_noted.wait()
                await self._write()
                await trio.sleep(BATCH_MS / 1000)

    async def _watch(self) -> None:
        """Who is late shows by nothing but the time."""
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

    def _wanted(self, partition: TopicPartition, image: ClusterImage) -> IsrChange | None:
        """None: it is as it should be, or not for this broker to say."""
        if partition not in self._led:
            return None
        self._learn(partition, image)
        try:
            log = self._store.get(partition)
            proposal = log.propose()
        except EngineError:
            return None
        if proposal is None:
            return None
        at = partition.topic_id, partition.partition, log.leader_epoch
        return IsrChange(*at, proposal.in_sync, proposal.added)

    def _learn(self, partition: TopicPartition, image: ClusterImage) -> None:
        """It may be gone, or led by another by the time this is known."""
        topic = image.topics_by_id.get(partition.topic_id)
        if topic is None or partition.partition >= len(topic.partitions):
            return
        state = topic.partitions[partition.partition]
        self._count(partition, len(state.isr))
        try:
            log = self._store.get(partition)
            log.learn(committed_of(image, partition.topic_id, state))
        except EngineError:
            return

    def _count(self, partition: TopicPartition, size: int) -> None:
        before = self._led.get(partition, size)
        self._counters.isr_shrinks += size < before
        self._counters.isr_expands += size > before
        self._led[partition] = size


def _fields(proposed: tuple[TopicPartition, IsrChange]) -> dict[str, object]:
    partition, change = proposed
    place = {"topic": partition.topic, "partition": partition.partition}
    return {**place, "epoch": change.leader_epoch, "isr": sorted(change.in_sync)}
