"""The catalogue of a bucket has the segments that the broker finds there, or raises an error."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from spark_connectors.segments.bucket_catalogue import BucketCatalogue
from spark_connectors.segments.sealed import CatalogueUnavailable, Sealed, Segment
from spark_connectors.segments.stores import Store
from spark_connectors.wire import TopicPartition
from testkit.bucket_broker import CLUSTER, EVERYTHING, OTHER_ID, PLACE, TOPIC_ID, Bucket, everything, name, put
from tiering.inventory.inventory import Part, holding_of
from tiering.manifest import manifest_log
from tiering.manifest.manifest import Manifest, SegmentEntry, diverge
from tiering.manifest.manifest_log import KEPT_MS, Change
from tiering.names import Place
from tiering.topic_deletion import delete_partition


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small manifests: most entries go into pages."""
    monkeypatch.setattr(manifest_log, "MANIFEST_MAX_BYTES", 2_000)
    monkeypatch.setattr(manifest_log, "PAGE_ENTRIES", 4)


def expected_segments(place: Place, entries: list[SegmentEntry]) -> list[Segment]:
    """Segments that a catalogue has to return."""
    return [
        Segment(
            *(one.base, one.end, one.size_bytes, one.max_timestamp_ms, one.records_digest),
            key=place.segment(one),
            records=one.records,
        )
        for one in entries
    ]


def check(bucket: Bucket, catalogue: BucketCatalogue) -> Sealed:
    """Compare with the segments that the broker finds."""
    found = everything(catalogue)
    holding = trio.run(holding_of, Part(bucket.store, "", CLUSTER), bucket.place())
    assert (found.log_start, found.end) == (holding.log_start, holding.end)
    counted = [one for one in bucket.entries() if one.end > found.log_start]
    assert list(found.segments) == expected_segments(bucket.place(), counted)
    return found


def paths_of(bucket: Bucket, prefix: str) -> list[Path]:
    return sorted(bucket.path(f"{bucket.place().prefix}{prefix}").iterdir())


# --- sealed segments


def test_catalogue_returns_the_copied_segments(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    first, second = bucket.copy(10, aborted=[(1, 2, 3)]), bucket.copy(25)
    found = check(bucket, catalogue)
    assert found == Sealed(
        PLACE,
        TOPIC_ID,
        0,
        25,
        (
            Segment(0, 10, 7, 10, first.entry.records_digest, key=first.key, records=10),
            Segment(10, 25, 7, 25, second.entry.records_digest, key=second.key, records=15),
        ),
        f"file://{bucket.directory}",
    )


def test_catalogue_finds_segments_that_are_copied_later(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    for end in range(10, 200, 10):
        bucket.copy(end)
        if end % 70 == 0:
            assert check(bucket, catalogue).end == end
    assert check(bucket, pickle.loads(pickle.dumps(catalogue))).end == 190


@pytest.mark.parametrize(
    ("start", "end", "bases"),
    [(0, EVERYTHING, [0, 10, 20]), (9, 11, [0, 10]), (10, 20, [10]), (15, 16, [10]), (30, 40, []), (0, 0, [])],
)
def test_catalogue_returns_the_segments_with_offsets_of_a_range(
    bucket: Bucket, catalogue: BucketCatalogue, start: int, end: int, bases: list[int]
) -> None:
    for offset in (10, 20, 30):
        bucket.copy(offset)
    found = catalogue.sealed(PLACE, TOPIC_ID, start, end)
    assert found is not None
    assert [one.base for one in found.segments] == bases
    assert (found.log_start, found.end) == (0, 30)


def test_segment_whose_copy_is_not_finished_is_not_returned(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.copy(10)
    bucket.path(bucket.place().manifest(2)).rename(bucket.path("aside"))
    assert everything(catalogue) == Sealed(PLACE, TOPIC_ID, 0, 0, (), f"file://{bucket.directory}")


@pytest.mark.parametrize("log_start", [5, 10, 15, 30, 40])
def test_segments_below_the_log_start_are_left_out(bucket: Bucket, catalogue: BucketCatalogue, log_start: int) -> None:
    for offset in (10, 20, 30):
        bucket.copy(offset)
    bucket.shed(log_start)
    found = everything(catalogue)
    assert found.log_start == log_start
    assert found.end == max(30, log_start)
    assert all(one.end > log_start for one in found.segments)
    if log_start < 30:
        check(bucket, catalogue)


def test_log_start_is_the_first_copied_offset(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    """Copies begin later if the tier was off at first."""
    for offset in (10, 20):
        bucket.copy(offset)

    def withdrawn(manifest: Manifest) -> Change:
        return Change(replace(manifest, generation=manifest.generation + 1, entries=manifest.entries[1:]))

    bucket.change(withdrawn)
    found = check(bucket, catalogue)
    assert (found.log_start, [one.base for one in found.segments]) == (10, [10])


def test_many_segments_lie_in_pages(small: None, bucket: Bucket, catalogue: BucketCatalogue) -> None:
    for offset in range(10, 220, 10):
        bucket.copy(offset)
    assert len(trio.run(bucket.log().load).pages) > 2
    assert len(check(bucket, catalogue).segments) == 21
    bucket.shed(25)  # within a page, which is replaced
    bucket.shed(25)
    assert check(bucket, catalogue).segments[0].base == 20


def test_pages_are_read_only_where_they_are_needed(small: None, bucket: Bucket, catalogue: BucketCatalogue) -> None:
    for offset in range(10, 220, 10):
        bucket.copy(offset)
    pages = trio.run(bucket.log().load).pages
    for page in pages[1:]:
        bucket.path(bucket.place().page(page)).unlink()
    found = catalogue.sealed(PLACE, TOPIC_ID, 0, pages[0].end)
    assert found is not None
    assert len(found.segments) == pages[0].count
    assert catalogue.sealed(PLACE, TOPIC_ID, pages[-1].end, EVERYTHING) is not None
    with pytest.raises(CatalogueUnavailable, match="pages go as fast as they are read"):
        catalogue.sealed(PLACE, TOPIC_ID, 0, pages[0].end + 1)


def test_pages_that_go_meanwhile_are_those_of_an_older_version(
    small: None, bucket: Bucket, catalogue: BucketCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(10, 220, 10):
        bucket.copy(offset)
    key = bucket.place().page(trio.run(bucket.log().load).pages[0])
    read = Store.read

    def going(store: Store, asked: str) -> bytes | None:
        if asked == key and bucket.path(key).exists():
            bucket.shed(15)
            bucket.path(key).unlink()
        return read(store, asked)

    monkeypatch.setattr(Store, "read", going)
    assert everything(catalogue).segments[0].base == 10


def test_segments_of_a_diverged_log_replace_the_copied_segments(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    """The new segment has another epoch and another generation."""
    for offset in (10, 20, 30):
        bucket.copy(offset)
    log = bucket.log(epoch=1)
    bucket.change(lambda manifest: Change(diverge(manifest, 15, 0)), log)
    bucket.copy(18, log=log)
    assert [one.end for one in everything(catalogue).segments] == [10, 18]
    assert list(everything(catalogue).segments) == expected_segments(bucket.place(), bucket.entries(log))


def test_a_restored_cluster_goes_on_in_the_same_place(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.copy(10)
    assert everything(catalogue).end == 10
    Bucket(bucket.directory, generation=1).copy(20)
    assert everything(catalogue).end == 20


# --- the newest version


def versions(bucket: Bucket, count: int) -> int:
    """Write `count` more versions without changes; returns the newest."""
    log = bucket.log()
    for _ in range(count):
        manifest = bucket.change(Change, log)
    return manifest.version


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    keys_below = Store.keys_below

    def counted(store: Store, prefix: str, *, is_deep: bool = True) -> list[str]:
        if prefix.endswith("manifest/"):
            made.append(prefix)
        return keys_below(store, prefix, is_deep=is_deep)

    monkeypatch.setattr(Store, "keys_below", counted)
    return made


@pytest.mark.parametrize("behind", [0, 1, 2, 3, 4, 30])
def test_a_version_that_was_met_is_where_the_next_search_begins(
    bucket: Bucket, catalogue: BucketCatalogue, listings: list[str], behind: int
) -> None:
    bucket.copy(10)
    assert everything(catalogue).end == 10
    versions(bucket, behind + 1)
    bucket.copy(20)
    for asked in (catalogue, pickle.loads(pickle.dumps(catalogue))):
        assert everything(asked).end == 20
    assert len(listings) == 1


def old(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    """Let versions be deleted soon after they are written."""
    monkeypatch.setattr(manifest_log, "KEPT_VERSIONS_MIN", 1)
    bucket.now_ms = 2**50 + KEPT_MS


def test_a_version_that_was_met_may_be_gone(
    bucket: Bucket, catalogue: BucketCatalogue, listings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.copy(10)
    everything(catalogue)
    versions(bucket, 70)
    bucket.copy(20)
    old(monkeypatch, bucket)
    assert trio.run(bucket.log().collect) == 63
    assert check(bucket, catalogue).end == 20
    assert len(listings) == 2
    bucket.path(bucket.place().manifest(2)).write_bytes(b"by a writer that stood still, and was told")
    assert check(bucket, BucketCatalogue(str(bucket.directory))).end == 20


@pytest.mark.parametrize("listed", [0, 1])
def test_a_listing_that_lags_behind_is_a_hint(
    bucket: Bucket, catalogue: BucketCatalogue, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    bucket.copy(10)
    monkeypatch.setattr(catalogue, "_listed", lambda _prefix: listed)
    assert everything(catalogue).end == 10


@pytest.mark.parametrize("listed", [0, 1, 40])
def test_listing_that_lags_too_far_behind_raises(
    bucket: Bucket, catalogue: BucketCatalogue, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    bucket.copy(10)
    versions(bucket, 70)
    old(monkeypatch, bucket)
    trio.run(bucket.log().collect)
    monkeypatch.setattr(catalogue, "_listed", lambda _prefix: listed)
    with pytest.raises(CatalogueUnavailable, match="the listing lags behind"):
        everything(catalogue)


# --- missing topics and damage


def test_catalogue_returns_none_for_an_unknown_topic_or_partition(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.copy(10)
    assert catalogue.sealed(PLACE, OTHER_ID, 0, EVERYTHING) is None
    assert catalogue.sealed(TopicPartition("topic", 1), TOPIC_ID, 0, EVERYTHING) is None


def test_catalogue_returns_none_for_a_deleted_topic(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.copy(10)
    everything(catalogue)
    trio.run(delete_partition, bucket.store, bucket.place(), 0, name, lambda: 0)
    for asked in (catalogue, BucketCatalogue(str(bucket.directory))):
        assert asked.sealed(PLACE, TOPIC_ID, 0, EVERYTHING) is None


def test_missing_bucket_directory_raises_instead_of_appearing_empty(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.copy(10)
    everything(catalogue)
    shutil.rmtree(bucket.directory)
    for asked in (catalogue, BucketCatalogue(str(bucket.directory), CLUSTER)):
        with pytest.raises(CatalogueUnavailable, match=f"has nothing of a cluster {CLUSTER}"):
            asked.sealed(PLACE, TOPIC_ID, 0, EVERYTHING)
    with pytest.raises(CatalogueUnavailable, match="it has that of none"):
        BucketCatalogue(str(bucket.directory)).sealed(PLACE, TOPIC_ID, 0, EVERYTHING)


@pytest.mark.parametrize("part", ["manifest/", "page/"])
def test_damage_is_told(small: None, bucket: Bucket, part: str) -> None:
    for offset in range(10, 150, 10):
        bucket.copy(offset)
    path = paths_of(bucket, part)[-1]
    data = path.read_bytes()
    for damaged in (b"", data[:-1], data.replace(b"1", b"2", 1)):
        path.write_bytes(damaged)
        with pytest.raises(CatalogueUnavailable, match=path.name):
            everything(BucketCatalogue(str(bucket.directory)))
    path.unlink()
    path.mkdir()
    with pytest.raises(CatalogueUnavailable, match=path.name if part == "manifest/" else "cannot be read"):
        everything(BucketCatalogue(str(bucket.directory)))


def test_something_else_beside_manifests_is_told(bucket: Bucket, catalogue: BucketCatalogue) -> None:
    bucket.copy(10)
    put(bucket, f"{bucket.place().manifests}x", b"")
    with pytest.raises(CatalogueUnavailable, match="x is no manifest"):
        everything(catalogue)
