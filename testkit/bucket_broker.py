"""Tiers, written by the broker's own code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import trio
from crc32c import crc32c

from engine import api
from engine.batches.batch import parse_header
from engine.files.filesystem import PosixFileSystem
from engine.logs.segments.footer import Tally, encode
from engine.tier import INDEX_ROW, CopiedSegment, File, SegmentFacts
from spark_connectors.segments.bucket_catalogue import BucketCatalogue
from spark_connectors.segments.sealed import Sealed
from spark_connectors.wire import TopicPartition
from testkit.object_store_suite import Bytes
from tiering.cluster_objects import ClusterObjects, TopicCopy
from tiering.manifest.manifest import Fence, Manifest, SegmentEntry, begin_copy, end_copy, shed
from tiering.manifest.manifest_log import Author, Change, ManifestLog
from tiering.names import Place
from tiering.object_store import Content, ObjectStore
from tiering.ownership import confirm_owner
from tiering.segment_object import make_object
from tiering.stores.directory import DirectoryStore

T = TypeVar("T")

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(reversed(TOPIC_ID))
PLACE = TopicPartition("topic", 0)
EVERYTHING = 2**63 - 1
CLUSTER = "cluster"
_numbers = itertools.count(1)


class AtOnce:
    """Runs jobs at once, without threads. Implements `tiering.object_store.Workers`."""

    async def run(self, job: Callable[[], T]) -> T:
        return job()


def name() -> str:
    return f"{next(_numbers):032x}"


class Written(NamedTuple):
    """A copied segment: its entry in the manifest, its key, and its trailer."""

    entry: SegmentEntry
    key: str
    trailer: bytes


class Tier:
    """Tier of one cluster, in a store that others may use too. `root` as in Place. Tests may change `now_ms`."""

    def __init__(self, store: ObjectStore, root: str = "", cluster_id: str = CLUSTER, generation: int = 0) -> None:
        self.now_ms = 1_000
        self.store = store
        self.root = root
        self.cluster_id = cluster_id
        self.generation = generation
        trio.run(confirm_owner, store, root, cluster_id, generation, self.now_ms)

    def place(self, partition: int = 0, topic_id: bytes = TOPIC_ID) -> Place:
        return Place(self.root, self.cluster_id, topic_id, partition)

    def log(self, place: Place | None = None, epoch: int = 0) -> ManifestLog:
        author = Author(Fence(self.generation, epoch), f"process-{epoch}", name, lambda: self.now_ms)
        return ManifestLog(self.store, place or self.place(), author)

    def change(self, change: Callable[[Manifest], Change], log: ManifestLog | None = None) -> Manifest:
        async def decide(manifest: Manifest) -> Change:
            return change(manifest)

        return trio.run((log or self.log()).change, decide)

    def copy(self, end: int, place: Place | None = None, log: ManifestLog | None = None, **segment: Any) -> Written:
        """Copy the next segment, up to `end`, with its object."""
        place = place or self.place()
        log = log or self.log(place)
        base = trio.run(log.load).end or 0
        copied = segment_of(place, base, end, **segment)
        put = make_object(copied)
        manifest = self.change(lambda manifest: Change(begin_copy(manifest, base, end, put.digest, self.now_ms)), log)
        assert manifest.copying is not None
        trio.run(self.store.put, place.segment(manifest.copying), put.content)
        entry = entry_of(copied, manifest.copying.generation, put.digest, put.content.size_bytes, put.content.crc32c)
        self.change(lambda manifest: Change(end_copy(manifest, entry, [(0, 0)])), log)
        return Written(entry, place.segment(entry), b"".join(put.content.slices())[entry.size_bytes :])

    def shed(self, log_start: int, log: ManifestLog | None = None) -> Manifest:
        """Move the log start, as far as one version may."""
        log = log or self.log()
        manifest = trio.run(log.load)
        first_page = trio.run(log.page, manifest.pages[0]) if manifest.pages else ()

        def change(manifest: Manifest) -> Change:
            done = shed(manifest, log_start, self.now_ms, first_page)
            return Change(done.manifest, done.rest)

        return self.change(change, log)

    def entries(self, log: ManifestLog | None = None) -> list[SegmentEntry]:
        """All entries that the broker finds."""
        log = log or self.log()
        return trio.run(log.entries, trio.run(log.load))

    def put_topic(self, topic: str, topic_id: bytes = TOPIC_ID, partition_count: int = 1) -> None:
        copy = TopicCopy(topic_id=topic_id.hex(), topic=topic, partition_count=partition_count, configs={"a": "b"})
        trio.run(ClusterObjects(self.store, self.root, self.cluster_id).put_topic, copy)


class Bucket(Tier):
    """Tier in a directory."""

    def __init__(self, directory: Path, cluster_id: str = CLUSTER, generation: int = 0) -> None:
        self.directory = directory
        store = DirectoryStore(str(directory), AtOnce(), name, PosixFileSystem().open)
        trio.run(store.prepare)
        super().__init__(store, "", cluster_id, generation)

    def path(self, key: str) -> Path:
        return self.directory / key


def everything(catalogue: BucketCatalogue, partition: int = 0, topic_id: bytes = TOPIC_ID) -> Sealed:
    found = catalogue.sealed(TopicPartition("topic", partition), topic_id, 0, EVERYTHING)
    assert found is not None
    return found


def put(bucket: Bucket, key: str, data: bytes) -> None:
    trio.run(bucket.store.put, key, Content.of(data))


def segment_of(
    place: Place,
    base: int,
    end: int,
    *,
    records: bytes = b"records",
    batches: Sequence[bytes] = (),
    aborted: Sequence[tuple[int, int, int]] = (),
    rows: Sequence[tuple[int, int, int]] = (),
    producers: bytes = b"producers",
) -> CopiedSegment:
    """A segment with a correct description of its batches; without `batches`, its bytes are no batches."""
    tally = Tally()
    tally.max_timestamp_ms = end
    if batches:
        records, tally = b"".join(batches), Tally()
        for one in batches:
            tally.add(parse_header(memoryview(one)))
    partition = api.TopicIdPartition(place.topic_id, "topic", place.partition)
    footer = tally.footer(partition, base, len(records), aborted=aborted)
    if not batches:
        footer = footer._replace(digest=(base.to_bytes(8, "big") + end.to_bytes(8, "big")) * 2, records=end - base)
    known = base, end, len(records), footer.records, -1, footer.max_timestamp_ms, 0, footer.digest
    facts = SegmentFacts(*known, has_aborted=bool(aborted))
    packed = b"".join(INDEX_ROW.pack(*row) for row in rows)
    file = cast("File", Bytes(records))
    return CopiedSegment(facts, file, crc32c(records), encode(footer), packed, b"", ((0, 0),), producers)


def entry_of(copied: CopiedSegment, generation: int, digest: str, object_size_bytes: int, crc: int) -> SegmentEntry:
    facts = copied.facts
    return SegmentEntry(
        base=facts.base_offset,
        end=facts.end_offset,
        generation=generation,
        digest=digest,
        records_digest=facts.digest.hex(),
        size_bytes=facts.size_bytes,
        object_size_bytes=object_size_bytes,
        crc32c=crc,
        records=facts.records,
        first_timestamp_ms=facts.first_timestamp_ms,
        max_timestamp_ms=facts.max_timestamp_ms,
        leader_epoch=facts.leader_epoch,
        has_aborted=facts.has_aborted,
        late_put_until_ms=0,
    )
