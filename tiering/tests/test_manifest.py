"""Changes of manifests, and their encoding."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tiering.errors import OtherVersion, TierDamaged
from tiering.manifest.codec import decode_manifest, decode_page, encode_manifest, encode_page
from tiering.manifest.manifest import (
    DOOMED_TOGETHER_MAX,
    Doomed,
    Fence,
    Intent,
    Manifest,
    SegmentEntry,
    begin_copy,
    check,
    diverge,
    end_copy,
    forget,
    give_up,
    is_below_start,
    shed,
    withdraw,
)
from tiering.names import Place, version_of

NOW_MS = 1_000


def entry(base: int, end: int, generation: int = 0, digest: str = "d", late_put_until_ms: int = 0) -> SegmentEntry:
    return SegmentEntry(
        base=base,
        end=end,
        generation=generation,
        digest=digest,
        records_digest="records",
        size_bytes=10 * (end - base),
        object_size_bytes=10 * (end - base) + 100,
        crc32c=base,
        records=end - base,
        first_timestamp_ms=base,
        max_timestamp_ms=end,
        leader_epoch=0,
        has_aborted=False,
        late_put_until_ms=late_put_until_ms,
    )


def copied(*bounds: int, manifest: Manifest | None = None) -> Manifest:
    """A manifest with segments between these offsets."""
    manifest = manifest or Manifest()
    for base, end in itertools.pairwise(bounds):
        manifest = begin_copy(manifest, base, end, "d", NOW_MS)
        assert manifest.copying is not None
        manifest = end_copy(manifest, entry(base, end, manifest.copying.generation), [(0, 0)])
    return manifest


def test_segment_counts_as_copied_only_after_end_copy() -> None:
    begun = begin_copy(Manifest(), 0, 10, "d", NOW_MS)
    assert begun.copying == Intent(0, 10, 0, "d")
    assert begun.is_empty
    done = end_copy(begun, entry(0, 10), [(3, 0)])
    assert (done.first_offset, done.end, done.size_bytes, done.segment_count) == (0, 10, 100, 1)
    assert done.copying is None
    assert done.epochs == ((3, 0),)


def test_a_copy_that_was_begun_goes_on() -> None:
    begun = begin_copy(copied(0, 10), 10, 20, "d", NOW_MS)
    assert begin_copy(begun, 10, 20, "d", NOW_MS + 5) is begun


@pytest.mark.parametrize(("end", "digest"), [(20, "other"), (30, "d")])
def test_different_segment_replaces_an_unfinished_copy(end: int, digest: str) -> None:
    begun = begin_copy(copied(0, 10), 10, 20, "d", NOW_MS)
    other = begin_copy(begun, 10, end, digest, NOW_MS)
    assert other.copying == Intent(10, end, 1, digest)
    assert other.doomed == (Doomed(NOW_MS, late_put=True, segment=Intent(10, 20, 0, "d")),)


def test_segments_are_copied_one_after_the_other() -> None:
    with pytest.raises(AssertionError):
        begin_copy(copied(0, 10), 20, 30, "d", NOW_MS)
    with pytest.raises(AssertionError):
        end_copy(begin_copy(Manifest(), 0, 10, "d", NOW_MS), entry(0, 10, generation=1), [])


def test_copy_after_an_abandoned_copy_has_a_new_generation() -> None:
    given_up = give_up(begin_copy(Manifest(), 0, 10, "d", NOW_MS), NOW_MS)
    assert given_up.copying is None
    assert given_up.generation == 1
    assert begin_copy(given_up, 0, 10, "d", NOW_MS).copying == Intent(0, 10, 1, "d")
    assert give_up(given_up, NOW_MS) is given_up


def test_segments_below_the_log_start_are_doomed() -> None:
    manifest = copied(0, 10, 20, 30)
    assert shed(manifest, 9, NOW_MS).manifest == replace(manifest, log_start=9)
    after = shed(manifest, 25, NOW_MS).manifest
    assert [one.segment for one in after.doomed] == [Intent(0, 10, 0, "d"), Intent(10, 20, 0, "d")]
    assert not any(one.late_put for one in after.doomed)
    assert [one.size_bytes for one in after.doomed] == [100, 100]
    assert after.entries == manifest.entries[2:]
    assert after.generation == 1
    assert not is_below_start(after)


def test_a_request_that_may_be_under_way_is_waited_for() -> None:
    old, young = entry(0, 10, late_put_until_ms=NOW_MS), entry(10, 20, late_put_until_ms=NOW_MS + 1)
    after = shed(Manifest(entries=(old, young)), 20, NOW_MS).manifest
    assert [one.late_put for one in after.doomed] == [False, True]


def test_a_log_start_does_not_go_back() -> None:
    assert shed(shed(copied(0, 10), 5, NOW_MS).manifest, 3, NOW_MS).manifest.log_start == 5


def test_manifest_version_dooms_a_bounded_number_of_objects() -> None:
    manifest = shed(copied(*range(DOOMED_TOGETHER_MAX + 3)), 1_000, NOW_MS).manifest
    assert len(manifest.doomed) == DOOMED_TOGETHER_MAX
    assert is_below_start(manifest)
    manifest = shed(manifest, 1_000, NOW_MS).manifest
    assert len(manifest.doomed) == DOOMED_TOGETHER_MAX + 2
    assert manifest.is_empty


def with_page(*bounds: int) -> tuple[Manifest, tuple[SegmentEntry, ...]]:
    entries = tuple(entry(base, end) for base, end in itertools.pairwise(bounds))
    page, _ = encode_page(entries, 0)
    return Manifest(pages=(page,), entries=(entry(bounds[-1], 100),)), entries


def test_rest_of_a_page_becomes_a_new_page() -> None:
    manifest, entries = with_page(0, 10, 20, 30)
    check(manifest)
    assert (manifest.first_offset, manifest.end, manifest.size_bytes) == (0, 100, 1000)
    after, rest = shed(manifest, 20, NOW_MS, entries)
    assert rest == entries[2:]
    assert [one.page for one in after.doomed] == [manifest.pages[0], None, None]
    assert [one.late_put for one in after.doomed] == [True, False, False]
    assert [one.segment for one in after.doomed][1:] == [one.intent for one in entries[:2]]
    assert after.pages == ()
    assert encode_page(rest, after.generation)[0].generation == 1


def test_a_page_above_the_log_start_stays() -> None:
    manifest, entries = with_page(0, 10, 20)
    assert shed(manifest, 5, NOW_MS, entries) == (replace(manifest, log_start=5), ())


def test_withdraw_dooms_all_segments_and_keeps_the_log_start() -> None:
    manifest = begin_copy(shed(copied(0, 10, 20, 30), 10, NOW_MS).manifest, 30, 40, "d", NOW_MS)
    after = withdraw(manifest, NOW_MS).manifest
    assert after.is_empty
    assert (after.log_start, after.copying) == (10, None)
    assert [one.segment and one.segment.base for one in after.doomed] == [0, 30, 10, 20]
    paged, entries = with_page(0, 10, 20, 30)
    after, rest = withdraw(paged, NOW_MS, entries)
    assert (after.pages, rest, after.entries) == ((), (), paged.entries)
    assert withdraw(after, NOW_MS).manifest.is_empty


def test_deleted_object_is_removed_from_the_doomed_objects() -> None:
    manifest = shed(copied(0, 10, 20), 20, NOW_MS).manifest
    first, second = manifest.doomed
    assert forget(manifest, [first]).doomed == (second,)
    assert forget(manifest, [first, second]).generation == manifest.generation


def test_diverge_dooms_the_copied_segments_from_the_offset_on() -> None:
    manifest = begin_copy(copied(0, 10, 20, 30), 30, 40, "d", NOW_MS)
    manifest = replace(manifest, epochs=((0, 0), (1, 15), (2, 25)))
    after = diverge(manifest, 20, NOW_MS)
    assert after.entries == manifest.entries[:2]
    assert after.copying is None
    assert [one.segment and one.segment.base for one in after.doomed] == [30, 20]
    assert [one.size_bytes for one in after.doomed] == [0, 100]
    assert all(one.late_put for one in after.doomed)
    assert after.epochs == ((0, 0), (1, 15))
    assert diverge(manifest, 12, NOW_MS).end == 10
    assert diverge(copied(0, 10), 10, NOW_MS) == copied(0, 10)


def test_diverge_within_a_page_dooms_the_page_and_its_later_segments() -> None:
    manifest, entries = with_page(0, 10, 20, 30)
    after = diverge(manifest, 10, NOW_MS, entries)
    check(after)
    assert (after.pages, after.entries) == ((), entries[:1])
    assert [one.page for one in after.doomed if one.page] == list(manifest.pages)
    assert [one.segment.base for one in after.doomed if one.segment] == [10, 20, 30]
    kept = diverge(manifest, 30, NOW_MS, entries)
    assert (kept.pages, kept.entries) == (manifest.pages, ())


def test_unfinished_copy_below_the_log_start_is_abandoned() -> None:
    manifest = begin_copy(copied(0, 10), 10, 20, "d", NOW_MS)
    assert shed(manifest, 19, NOW_MS).manifest.copying is not None
    after = shed(manifest, 20, NOW_MS).manifest
    assert after.copying is None
    assert [one.late_put for one in after.doomed] == [True, False]


# As bytes

PLACE = Place("lake/", "cluster", bytes(16), 3)

offsets = st.integers(0, 2**63 - 1)
words = st.text("0123456789abcdef", min_size=1, max_size=64)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    bounds = sorted(draw(st.sets(offsets, min_size=1, max_size=6)))
    entries = tuple(entry(base, end, draw(st.integers(0, 5)), draw(words)) for base, end in itertools.pairwise(bounds))
    copying = draw(st.none() | st.builds(Intent, st.just(bounds[-1]), offsets, offsets, words))
    segments = st.builds(Intent, offsets, offsets, offsets, words)
    doomed = draw(st.lists(st.builds(Doomed, offsets, st.booleans(), segments), max_size=3))
    return Manifest(
        version=draw(offsets),
        fence=Fence(draw(offsets), draw(offsets)),
        incarnation=draw(words),
        nonce=draw(words),
        epochs=((0, 0),),
        entries=entries,
        copying=copying,
        doomed=tuple(doomed),
    )


@given(manifests())
def test_decoded_manifest_equals_the_encoded_manifest(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest), "key") == manifest


def test_every_flipped_bit_is_found() -> None:
    data = encode_manifest(copied(0, 10, 20))
    for position in range(len(data)):
        for bit in range(8):
            flipped = data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]
            with pytest.raises(TierDamaged, match="the-key"):
                decode_manifest(flipped, "the-key")
    for size in range(len(data)):
        with pytest.raises(TierDamaged):
            decode_manifest(data[:size], "the-key")


def signed(value: object) -> bytes:
    line = msgspec.json.encode(value) + b"\n"
    return line + b"crc32c=%08x\n" % crc32c(line)


def test_another_format_is_refused() -> None:
    with pytest.raises(OtherVersion, match="the-key has format 2"):
        decode_manifest(signed({"v": 2}), "the-key")


@pytest.mark.parametrize(
    "value", [[], {"v": 1, "entries": 3}, {"v": 1, "fence": [1]}, {"version": 3}, {"v": 1, "doomed": [{}]}]
)
def test_malformed_manifest_raises_tier_damaged(value: object) -> None:
    with pytest.raises(TierDamaged, match="the-key makes no sense"):
        decode_manifest(signed(value), "the-key")


def test_unknown_fields_are_ignored() -> None:
    assert decode_manifest(signed({"v": 1, "version": 7, "later": [1]}), "key") == Manifest(version=7)


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest(entries=(entry(0, 10), entry(11, 20))),
        Manifest(entries=(entry(0, 10), entry(9, 20))),
        Manifest(entries=(entry(10, 10),)),
        Manifest(entries=(entry(0, 10),), copying=Intent(11, 20, 0, "d")),
        Manifest(epochs=((0, 0), (0, 5))),
        Manifest(epochs=((0, 5), (1, 4))),
    ],
)
def test_manifest_with_gaps_overlaps_or_wrong_epochs_raises_tier_damaged(manifest: Manifest) -> None:
    with pytest.raises(TierDamaged, match="the-key"):
        decode_manifest(encode_manifest(manifest), "the-key")


def test_decoded_page_equals_the_encoded_page_and_another_page_is_refused() -> None:
    entries = (entry(0, 10), entry(10, 20))
    page, data = encode_page(entries, 4)
    assert decode_page(data, page, "key") == entries
    with pytest.raises(TierDamaged, match="is not the page"):
        decode_page(data, replace(page, digest="00"), "key")
    with pytest.raises(TierDamaged, match="is not the page"):
        decode_page(data, replace(page, count=3), "key")


def test_keys_sort_as_their_numbers_do() -> None:
    versions = [1, 9, 10, 99, 2**63 - 1]
    keys = [PLACE.manifest(version) for version in versions]
    assert keys == sorted(keys)
    assert [version_of(key) for key in keys] == versions
    assert PLACE.segment(Intent(7, 12, 2, "ab")) == (
        f"lake/cluster/{'0' * 32}/3/00000000000000000007-00000000000000000012-0000000002-ab"
    )
    with pytest.raises(TierDamaged):
        version_of("manifest/readme.txt")


def test_doomed_object_has_the_key_of_its_put() -> None:
    page, _ = encode_page([entry(0, 10)], 4)
    assert PLACE.doomed(Doomed(0, page=page)) == PLACE.page(page)
    assert PLACE.doomed(Doomed(0, segment=entry(0, 10).intent)) == PLACE.segment(entry(0, 10))
