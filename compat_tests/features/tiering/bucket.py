"""Comparison of all objects in a bucket with its manifests: an independent reading of docs/formats/tier.md.

No broker takes part, and nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from crc32c import crc32c

from tiering.errors import TierError
from tiering.manifest.codec import decode_manifest, decode_page
from tiering.names import Place, version_of
from tiering.object_store import ObjectMissing
from tiering.parallel import keys_below
from tiering.segment_object import TAIL_SIZE_BYTES, read_tail, read_trailer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiering.manifest.manifest import Manifest, SegmentEntry
    from tiering.object_store import ObjectStore

SHOWN_PER_KIND = 3
OF_THE_CLUSTER = ("owner", "topics", "offsets")  # beside its partitions


@dataclass
class Bucket:
    """The result. `doomed` and `on_their_way`: objects that a manifest marks for deletion, or that are not whole yet;
    `pages_left`: pages that no manifest names, as a crash may leave them; `probes_left`: objects of store probes."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    pages: int = 0
    versions: int = 0
    doomed: int = 0
    on_their_way: int = 0
    pages_left: int = 0
    probes_left: int = 0
    anomalies: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def problems(self) -> list[str]:
        """The anomalies, a few of each kind with their number."""
        return [
            f"{kind} x {len(each)}: {'; '.join(each[:SHOWN_PER_KIND])}" for kind, each in self.anomalies.items() if each
        ]


async def examine(store: ObjectStore, root: str) -> Bucket:
    """Check all objects below `root`, which ends with a slash or is empty."""
    found = Bucket()
    keys = await keys_below(store, root)
    partitions: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        parts = key.removeprefix(root).split("/")
        if parts[0] == "probe":
            found.probes_left += 1
            continue
        if parts[1] in OF_THE_CLUSTER:
            continue
        partitions[f"{root}{'/'.join(parts[:3])}/"].add(key)
    for prefix, its_keys in partitions.items():
        found.partitions += 1
        await _examine_partition(store, root, prefix, its_keys, found)
    return found


def place_of(root: str, prefix: str) -> Place:
    cluster_id, topic_id, partition, _ = prefix.removeprefix(root).split("/")
    return Place(root, cluster_id, bytes.fromhex(topic_id), int(partition))


async def _examine_partition(store: ObjectStore, root: str, prefix: str, keys: set[str], found: Bucket) -> None:
    place = place_of(root, prefix)
    manifests = sorted(key for key in keys if key.startswith(place.manifests))
    pages = {key for key in keys if key.startswith(f"{prefix}page/")}
    collections = {key for key in keys if key.startswith(place.collections)}
    found.versions += len(manifests)
    versions = [version_of(key) for key in manifests]
    found.anomalies["version missing"] += [
        f"{prefix} has {before} and {behind}" for before, behind in pairwise(versions) if behind != before + 1
    ]
    objects = keys - pages - collections - set(manifests)
    try:
        newest = decode_manifest(await store.get(manifests[-1]), manifests[-1])
        entries = await _entries(store, place, newest)
    except (IndexError, TierError, ObjectMissing) as error:
        found.anomalies["manifest"].append(f"{prefix}: {error!r}")
        return
    for entry in entries:
        await _examine_segment(store, place.segment(entry), entry, found)
    _note_gaps(prefix, newest, entries, found)
    named_pages = {place.page(page) for page in newest.pages}
    doomed = {place.doomed(one) for one in newest.doomed}
    on_their_way = set() if newest.copying is None else {place.segment(newest.copying)}
    counted = {place.segment(entry) for entry in entries}
    found.pages += len(named_pages)
    found.doomed += len((objects | pages) & doomed)
    found.on_their_way += len(objects & on_their_way)
    found.pages_left += len(pages - named_pages - doomed)
    found.anomalies["counts and doomed"] += sorted((counted | named_pages) & doomed)
    found.anomalies["orphan"] += sorted(objects - counted - doomed - on_their_way)


async def _entries(store: ObjectStore, place: Place, newest: Manifest) -> list[SegmentEntry]:
    entries: list[SegmentEntry] = []
    for page in newest.pages:
        entries += decode_page(await store.get(place.page(page)), page, place.page(page))
    return [*entries, *newest.entries]


async def _examine_segment(store: ObjectStore, key: str, entry: SegmentEntry, found: Bucket) -> None:
    """Check that the bytes of a segment are as uploaded, and that its trailer can be read."""
    info = await store.head(key)
    if info is None:
        found.anomalies["dangling entry"].append(key)
        return
    try:
        data = await store.get(key)
    except ObjectMissing:
        found.anomalies["dangling entry"].append(key)
        return
    found.segments += 1
    found.bytes += entry.size_bytes
    told = (info.size_bytes, info.crc32c if info.crc32c is not None else entry.crc32c)
    if not told == (len(data), crc32c(data)) == (entry.object_size_bytes, entry.crc32c):
        found.anomalies["other bytes"].append(key)
        return
    try:
        tail = read_tail(data[-TAIL_SIZE_BYTES:], key)
        read_trailer(data[tail.records :], key)
    except TierError as error:
        found.anomalies["trailer"].append(str(error))
    else:
        if tail.records != entry.size_bytes:
            found.anomalies["other size"].append(key)


def _note_gaps(prefix: str, newest: Manifest, entries: Iterable[SegmentEntry], found: Bucket) -> None:
    """Note gaps between the segments, and segments below the log start."""
    bounds = [(one.base, one.end) for one in entries]
    found.anomalies["gap"] += [
        f"{prefix}: {before} {behind}" for before, behind in pairwise(bounds) if before[1] != behind[0]
    ]
    if bounds and bounds[0][0] > newest.log_start:
        found.anomalies["gap"].append(f"{prefix} begins at {bounds[0][0]}, the log at {newest.log_start}")
