"""Inventory of a cluster's part of a store, for restore, audit and status.

Only `take_over_partition` changes anything, and fences writers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tiering.errors import TierError
from tiering.manifest.manifest import NO_LEADERS_EPOCH, Fence, Manifest, SegmentEntry
from tiering.manifest.manifest_log import Author, Change, ManifestLog
from tiering.names import Place
from tiering.object_store import ObjectMissing
from tiering.parallel import for_each
from tiering.segment_object import fetch_trailer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiering.cluster_objects import TopicCopy
    from tiering.object_store import ObjectStore

AT_ONCE = 16
LAST_GENERATION = 2**31 - 1


class PartitionHolding(NamedTuple):
    """The copied records of a partition, from `log_start` to `end`.

    `leader_epoch`: of the last writer, -1 without any. `producers`: the producer snapshot at the end. `footer`: of the
    last segment; empty without segments.
    """

    place: Place
    manifest: Manifest
    producers: bytes
    footer: bytes = b""

    @property
    def segments(self) -> int:
        return self.manifest.segment_count

    @property
    def log_start(self) -> int:
        return max(self.manifest.log_start, self.manifest.first_offset or 0)

    @property
    def end(self) -> int:
        return self.log_start if self.manifest.end is None else self.manifest.end

    @property
    def leader_epoch(self) -> int:
        epochs = [epoch for epoch, _ in self.manifest.epochs]
        return max(self.manifest.fence.leader_epoch, *epochs, -1) if self.manifest.version else -1


@dataclass(frozen=True, slots=True)
class TopicHolding:
    """A topic and its partitions in order; in place of a partition that cannot be read, the text of its error."""

    topic: TopicCopy
    partitions: Sequence[PartitionHolding | str]


@dataclass(frozen=True, slots=True)
class Part:
    """A cluster's part of a store."""

    store: ObjectStore
    root: str
    cluster_id: str

    def place(self, topic_id: bytes, partition: int) -> Place:
        return Place(self.root, self.cluster_id, topic_id, partition)

    def log_of(self, place: Place) -> ManifestLog:
        """The manifests of a partition, for reads: this author has the highest fence, so it is never fenced."""
        author = Author(Fence(LAST_GENERATION, NO_LEADERS_EPOCH), "", lambda: "", lambda: 0)
        return ManifestLog(self.store, place, author)


async def clusters(store: ObjectStore, root: str) -> list[str]:
    """The ids of the clusters in a store. Raises StoreError."""
    found: list[str] = []
    after = ""
    while listed := await store.list_after(root, after, 1):
        cluster_id, slash, _ = listed[0].key.removeprefix(root).partition("/")
        after = f"{root}{cluster_id}0" if slash else listed[0].key  # "0" follows upon "/"
        if slash and cluster_id != "probe":
            found.append(cluster_id)
    return found


async def holding_of(part: Part, place: Place) -> PartitionHolding:
    """The copied records of a partition. Raises StoreError, TierDamaged and OtherVersion."""
    manifests = part.log_of(place)
    manifest = await manifests.load()
    last = await _last_entry(manifests, manifest)
    if last is None:
        return PartitionHolding(place, manifest, b"")
    trailer = await fetch_trailer(part.store, place.segment(last), last)
    return PartitionHolding(place, manifest, trailer.producers, trailer.footer)


async def holdings_of(part: Part, topic: TopicCopy) -> TopicHolding | None:
    """The copied partitions of a topic; None if it was deleted. Raises StoreUnavailable, StoreRefused."""
    found: dict[int, PartitionHolding | str] = {}

    async def read_holding(number: int) -> None:
        try:
            found[number] = await holding_of(part, part.place(bytes.fromhex(topic.topic_id), number))
        except (TierError, ObjectMissing) as error:
            found[number] = str(error)

    await for_each(range(topic.partition_count), read_holding, AT_ONCE, stops=True)
    if any(not isinstance(one, str) and one.manifest.is_deleted for one in found.values()):
        return None
    return TopicHolding(topic, [found[number] for number in range(topic.partition_count)])


async def take_over_partition(part: Part, holding: PartitionHolding, author: Author) -> None:
    """Fence all earlier writers of a partition, as `author`. Raises StoreError, Fenced, TierDamaged, OtherVersion."""
    if holding.manifest.version:
        await ManifestLog(part.store, holding.place, author).change(_unchanged)


async def _unchanged(manifest: Manifest) -> Change:
    return Change(manifest)


async def _last_entry(manifests: ManifestLog, manifest: Manifest) -> SegmentEntry | None:
    if manifest.entries:
        return manifest.entries[-1]
    return (await manifests.page(manifest.pages[-1]))[-1] if manifest.pages else None
