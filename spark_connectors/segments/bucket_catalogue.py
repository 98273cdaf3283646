"""Catalogue of sealed segments from the remote tier alone, without a broker: docs/formats/tier.md."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from spark_connectors.locations import resolved
from spark_connectors.segments.manifests import (
    Manifest,
    Page,
    SegmentEntry,
    TopicCopy,
    collected_name,
    decode_manifest,
    decode_page,
    decode_topic,
    manifest_name,
    version_of,
)
from spark_connectors.segments.sealed import CatalogueUnavailable, Sealed, Segment
from spark_connectors.segments.stores import Store, StoreError, StoreUnavailable
from spark_connectors.wire import TopicPartition

TRIES_MAX: Final = 3  # if objects change meanwhile
_PROBE: Final = "probe/"  # written by brokers that test the store


class Topic(NamedTuple):
    """A topic of the tier."""

    topic_id: bytes
    partition_count: int


class BucketCatalogue:
    """Implements `spark_connectors.segments.sealed.Catalogue`. It is pickled to executors, and remembers the versions
    that it has seen.
    """

    def __init__(self, location: str, cluster_id: str | None = None) -> None:
        """`location`: as in the broker's tier.store, or a URL for pyarrow's file systems. Without a cluster id, the
        store must have exactly one cluster; this is checked at the first question. Raises ValueError.
        """
        self._store = Store(resolved(location))
        self._cluster_id = cluster_id
        self._newest_versions: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"BucketCatalogue({self._store.name})"

    def sealed(self, place: TopicPartition, topic_id: bytes, start: int, end: int) -> Sealed | None:
        """Sealed segments of the newest manifest; None for a deleted topic. Raises CatalogueUnavailable."""
        try:
            prefix = f"{self._cluster()}{topic_id.hex()}/{place.partition}/"
            for _ in range(TRIES_MAX):
                manifest = self._newest(prefix)
                if manifest is None or manifest.is_deleted:
                    return None
                found = self._entries(prefix, manifest, start, end)
                if found is not None:
                    return self._sealed_of(place, topic_id, prefix, manifest, found)
        except StoreError as error:
            raise CatalogueUnavailable(str(error)) from error
        raise CatalogueUnavailable(f"{prefix}: pages go as fast as they are read")

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Topics of these names as far as they exist, or all. Their copies in the tier lag behind the cluster; `sealed`
        knows recent deletions. Raises CatalogueUnavailable, also if two topics of one name both exist.
        """
        try:
            by_name: dict[str, list[TopicCopy]] = {}
            for copy in self._topic_copies():
                if names is None or copy.topic in names:
                    by_name.setdefault(copy.topic, []).append(copy)
            living = {name: self._living(copies) for name, copies in by_name.items()}
        except StoreError as error:
            raise CatalogueUnavailable(str(error)) from error
        return {name: Topic(one.topic_id, one.partition_count) for name, one in living.items() if one is not None}

    def _cluster(self) -> str:
        """Prefix of the cluster's keys. Raises StoreUnavailable, CatalogueUnavailable."""
        if self._cluster_id is None:
            self._cluster_id = self._only_cluster()
        return f"{self._store.root}{self._cluster_id}/"

    def _only_cluster(self) -> str:
        root = self._store.root
        folders = [one for one in self._store.keys_below(root, is_deep=False) if one.endswith("/")]
        found = [one for one in folders if one != f"{root}{_PROBE}" and self._store.keys_below(f"{one}owner/")]
        names = [one.removeprefix(root).rstrip("/") for one in found]
        if len(names) != 1:
            reason = f"it has those of {', '.join(names)}: say which" if names else "it has that of none"
            raise CatalogueUnavailable(f"{self._store.name} is not the tier of one cluster: {reason}")
        return names[0]

    def _topic_copies(self) -> Iterator[TopicCopy]:
        """The newest copy of each topic id."""
        newest: dict[str, str] = {}
        for key in self._store.keys_below(f"{self._cluster()}topics/"):
            newest[key.rpartition("/")[0]] = key  # names of versions sort like numbers
        for key in newest.values():
            data = self._store.read(key)
            if data is not None:  # None: it was replaced or deleted since the listing
                yield decode_topic(data, key)

    def _living(self, copies: list[TopicCopy]) -> TopicCopy | None:
        """The topic that was not deleted, among topics of one name; None: all were."""
        if len(copies) == 1:
            return copies[0]
        living = [one for one in copies if not self._is_deleted(one)]
        if len(living) > 1:
            ids = ", ".join(one.topic_id.hex() for one in living)
            raise CatalogueUnavailable(f"which topic is {living[0].topic} cannot be told: {ids}")
        return living[0] if living else None

    def _is_deleted(self, topic: TopicCopy) -> bool:
        prefixes = (f"{self._cluster()}{topic.topic_id.hex()}/{number}/" for number in range(topic.partition_count))
        manifests = (self._newest(one) for one in prefixes)
        return any(one is not None and one.is_deleted for one in manifests)

    def _newest(self, prefix: str) -> Manifest | None:
        """The newest manifest; None: there never was one. Raises StoreUnavailable, CatalogueUnavailable."""
        version = self._newest_versions.get(prefix) or self._listed(prefix)
        for _ in range(TRIES_MAX):
            version = self._last_from(prefix, version)
            manifest = self._manifest(prefix, version)
            if manifest is not None and manifest.is_deleted:
                return manifest
            is_gone = manifest is None and version > 0
            if not is_gone and not self._store.has(f"{prefix}{collected_name(version + 1)}"):
                self._newest_versions[prefix] = version
                return manifest
            version = self._listed(prefix)  # the known version is older than all kept ones
        raise StoreUnavailable(f"{prefix}manifest/: the listing lags behind")

    def _listed(self, prefix: str) -> int:
        """A version that exists; 0: none is listed."""
        keys = self._store.keys_below(f"{prefix}manifest/")
        if not keys and not self._store.keys_below(self._cluster(), is_deep=False):
            raise StoreUnavailable(f"{self._store.name} has nothing of a cluster {self._cluster_id}")
        return version_of(keys[-1]) if keys else 0

    def _last_from(self, prefix: str, version: int) -> int:
        """The last existing version, from an existing one on; 0 counts as existing. There are no gaps: steps are
        doubled while they reach an existing version, and then halved.
        """
        step = 1
        while self._has_version(prefix, version + step):
            version, step = version + step, 2 * step
        while step > 1:
            step //= 2
            if self._has_version(prefix, version + step):
                version += step
        return version

    def _has_version(self, prefix: str, version: int) -> bool:
        return self._store.has(f"{prefix}{manifest_name(version)}")

    def _manifest(self, prefix: str, version: int) -> Manifest | None:
        key = f"{prefix}{manifest_name(version)}"
        data = self._store.read(key)
        return None if data is None else decode_manifest(data, key)

    def _entries(self, prefix: str, manifest: Manifest, start: int, end: int) -> list[SegmentEntry] | None:
        """Entries with offsets in [start, end) of the log; None: a page is gone, because there is a newer version."""
        first = max(start, manifest.log_start)
        found: list[SegmentEntry] = []
        for page in manifest.pages:
            if page.base < end and page.end > first:
                entries = self._page(prefix, page)
                if entries is None:
                    return None
                found += entries
        return [one for one in (*found, *manifest.entries) if one.base < end and one.end > first]

    def _page(self, prefix: str, page: Page) -> tuple[SegmentEntry, ...] | None:
        key = f"{prefix}{page.name}"
        data = self._store.read(key)
        return None if data is None else decode_page(data, page, key)

    def _sealed_of(
        self, place: TopicPartition, topic_id: bytes, prefix: str, manifest: Manifest, entries: list[SegmentEntry]
    ) -> Sealed:
        log_start = max(manifest.log_start, manifest.first_offset or 0)
        end = max(log_start, manifest.end or 0)
        segments = tuple(_segment(f"{prefix}{one.name}", one) for one in entries)
        return Sealed(place, topic_id, log_start, end, segments, self._store.name)


def _segment(key: str, entry: SegmentEntry) -> Segment:
    known = entry.base, entry.end, entry.size_bytes, entry.max_timestamp_ms, entry.records_digest
    return Segment(*known, key=key, min_timestamp_ms=entry.min_timestamp_ms, records=entry.records)
