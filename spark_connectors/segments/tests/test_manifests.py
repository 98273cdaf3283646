"""Objects that the broker writes to a tier are read with the same content, or refused by name."""

from __future__ import annotations

import itertools
import json
from hashlib import blake2b
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.segments import manifests
from spark_connectors.segments.manifests import (
    collected_name,
    decode_manifest,
    decode_page,
    decode_topic,
    manifest_name,
    version_of,
)
from spark_connectors.segments.sealed import CatalogueUnavailable
from tiering.checked_json import with_checksum
from tiering.cluster_objects import TopicCopy
from tiering.manifest.codec import encode_manifest, encode_page
from tiering.manifest.manifest import Doomed, Fence, Intent, Manifest, Page, SegmentEntry
from tiering.names import Place

PLACE = Place("", "cluster", bytes(16), 3)
NUMBERS = st.integers(0, 2**63 - 1)
GENERATIONS = st.integers(0, 2**31 - 1)
DIGESTS = st.binary(min_size=16, max_size=16).map(bytes.hex)
BOUNDS = st.lists(NUMBERS, min_size=1, max_size=12, unique=True).map(sorted)
INTENTS = st.builds(Intent, NUMBERS, NUMBERS, GENERATIONS, DIGESTS)


@st.composite
def entries_between(draw: st.DrawFn, bounds: list[int]) -> tuple[SegmentEntry, ...]:
    return tuple(
        SegmentEntry(
            base=base,
            end=end,
            generation=draw(GENERATIONS),
            digest=draw(DIGESTS),
            records_digest=draw(DIGESTS) + draw(DIGESTS),
            size_bytes=draw(NUMBERS),
            object_size_bytes=draw(NUMBERS),
            crc32c=draw(st.integers(0, 2**32 - 1)),
            records=draw(NUMBERS),
            first_timestamp_ms=draw(st.integers(-1, 2**63 - 1)),
            max_timestamp_ms=draw(st.integers(-1, 2**63 - 1)),
            leader_epoch=draw(GENERATIONS),
            has_aborted=draw(st.booleans()),
            late_put_until_ms=draw(NUMBERS),
            min_timestamp_ms=draw(st.integers(-1, 2**63 - 1)),
        )
        for base, end in itertools.pairwise(bounds)
    )


@st.composite
def any_manifest(draw: st.DrawFn) -> Manifest:
    bounds = draw(BOUNDS)
    paged = draw(st.integers(0, len(bounds) - 1))
    pages = tuple(
        Page(first, end, draw(GENERATIONS), draw(DIGESTS), draw(NUMBERS), draw(NUMBERS))
        for first, end in itertools.pairwise(bounds[: paged + 1])
    )
    return Manifest(
        version=draw(NUMBERS),
        fence=Fence(draw(GENERATIONS), draw(st.integers(-1, 2**31 - 1))),
        incarnation=draw(DIGESTS),
        nonce=draw(DIGESTS),
        written_ms=draw(NUMBERS),
        log_start=draw(NUMBERS),
        epochs=tuple(draw(st.lists(st.tuples(GENERATIONS, NUMBERS), max_size=3))),
        generation=draw(GENERATIONS),
        pages=pages,
        entries=draw(entries_between(bounds[paged:])),
        copying=draw(st.none() | INTENTS),
        doomed=tuple(draw(st.lists(st.builds(Doomed, NUMBERS, st.booleans(), st.none() | INTENTS), max_size=3))),
        is_deleted=draw(st.booleans()),
    )


def fields(found: Any, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(found, name) for name in names)


ENTRY_FIELDS = (
    "base", "end", "generation", "digest", "records_digest", "size_bytes", "max_timestamp_ms", "min_timestamp_ms",
    "records",
)  # fmt: skip


@given(any_manifest())
def test_decoded_manifest_equals_the_manifest_of_the_broker(written: Manifest) -> None:
    found = decode_manifest(encode_manifest(written), PLACE.manifest(written.version))
    known = "version", "log_start", "is_deleted", "first_offset", "end"
    assert fields(found, *known) == fields(written, *known)
    assert list(found.entries) == [fields(one, *ENTRY_FIELDS) for one in written.entries]
    assert list(found.pages) == [fields(one, "first", "end", "generation", "digest") for one in written.pages]


@given(any_manifest())
def test_keys_are_those_of_the_broker(written: Manifest) -> None:
    found = decode_manifest(encode_manifest(written), PLACE.manifest(written.version))
    assert [PLACE.prefix + one.name for one in found.entries] == [PLACE.segment(one) for one in written.entries]
    assert [PLACE.prefix + one.name for one in found.pages] == [PLACE.page(one) for one in written.pages]
    assert PLACE.prefix + manifest_name(written.version) == PLACE.manifest(written.version)
    assert version_of(PLACE.manifest(written.version)) == written.version


@pytest.mark.parametrize(("version", "block"), [(0, 0), (63, 0), (64, 1), (1_000, 15)])
def test_versions_are_of_the_blocks_of_the_broker(version: int, block: int) -> None:
    assert PLACE.prefix + collected_name(version) == PLACE.collected(block)


@given(BOUNDS.filter(lambda bounds: len(bounds) > 1).flatmap(entries_between), GENERATIONS)
def test_decoded_page_equals_the_page_of_the_broker(entries: tuple[SegmentEntry, ...], generation: int) -> None:
    page, data = encode_page(entries, generation)
    named = manifests.Page(page.first, page.end, page.generation, page.digest)
    assert list(decode_page(data, named, "key")) == [fields(one, *ENTRY_FIELDS) for one in entries]
    with pytest.raises(CatalogueUnavailable, match="the-key is not the page that was written"):
        decode_page(data, named._replace(digest="0" * 32), "the-key")


@given(DIGESTS, st.text(max_size=20), st.integers(1, 10_000), st.dictionaries(st.text(), st.text(), max_size=2))
def test_decoded_topic_equals_the_brokers(topic_id: str, topic: str, count: int, configs: dict[str, str]) -> None:
    copy = TopicCopy(topic_id=topic_id, topic=topic, partition_count=count, configs=configs)
    assert decode_topic(with_checksum(copy), "key") == (bytes.fromhex(topic_id), topic, count)


def lines(document: Any) -> bytes:
    line = json.dumps(document).encode() + b"\n"
    return line + b"crc32c=%08x\n" % crc32c(line)


ENTRY = {
    "base": 0, "end": 10, "generation": 0, "digest": "d" * 32, "records_digest": "e" * 64, "size_bytes": 1,
    "max_timestamp_ms": -1,
}  # fmt: skip
PAGE = {"first": 0, "end": 10, "generation": 0, "digest": "d" * 32}
MANIFEST: dict[str, Any] = {
    "v": 1, "version": 7, "log_start": 0, "pages": [], "entries": [ENTRY], "is_deleted": False, "added": "later",
}  # fmt: skip
KEY = PLACE.manifest(7)


def test_every_flipped_bit_is_found() -> None:
    data = lines(MANIFEST)
    assert decode_manifest(data, KEY).end == 10
    for position in range(len(data)):
        flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(CatalogueUnavailable, match=KEY):
            decode_manifest(flipped, KEY)
        with pytest.raises(CatalogueUnavailable, match=KEY):
            decode_manifest(data[:position], KEY)


@pytest.mark.parametrize("name", [name for name in MANIFEST if name != "added"])
def test_every_field_of_a_manifest_is_needed(name: str) -> None:
    with pytest.raises(CatalogueUnavailable, match=f"{KEY} makes no sense"):
        decode_manifest(lines({key: value for key, value in MANIFEST.items() if key != name}), KEY)
    value: Any
    for value in (None, "1", -2, 1.5, 2**63, [3], [[]], {}, "nothing"):
        with pytest.raises(CatalogueUnavailable, match=KEY):
            decode_manifest(lines({**MANIFEST, name: value}), KEY)


@pytest.mark.parametrize("name", ENTRY)
@pytest.mark.parametrize("value", [None, "1", -2, True, 1.5, 2**63, "../" * 11, []])
def test_every_field_of_an_entry_is_looked_at(name: str, value: Any) -> None:
    with pytest.raises(CatalogueUnavailable, match=f"{KEY} makes no sense"):
        decode_manifest(lines({**MANIFEST, "entries": [{**ENTRY, name: value}]}), KEY)


@pytest.mark.parametrize("name", PAGE)
def test_every_field_of_a_page_is_looked_at(name: str) -> None:
    with pytest.raises(CatalogueUnavailable, match=f"{KEY} makes no sense"):
        decode_manifest(lines({**MANIFEST, "entries": [], "pages": [{**PAGE, name: -1}]}), KEY)


@pytest.mark.parametrize("bounds", [[(0, 0)], [(5, 4)], [(0, 10), (11, 20)], [(0, 10), (9, 20)]])
def test_segments_that_do_not_follow_each_other_are_refused(bounds: list[tuple[int, int]]) -> None:
    entries = [{**ENTRY, "base": base, "end": end} for base, end in bounds]
    data = lines({"v": 1, "entries": entries})
    page = manifests.Page(0, 20, 0, blake2b(data, digest_size=16).hexdigest())
    wrong = "makes no sense: (a segment ends|segments do not follow)"
    with pytest.raises(CatalogueUnavailable, match=wrong):
        decode_page(data, page, "key")
    with pytest.raises(CatalogueUnavailable, match=wrong):
        decode_manifest(lines({**MANIFEST, "entries": entries}), KEY)


@pytest.mark.parametrize("text", [b"[]", b"1", b"{", b"\xff", b"[" * 100_000, b"1" * 5_000])
def test_malformed_document_is_refused(text: bytes) -> None:
    line = text + b"\n"
    with pytest.raises(CatalogueUnavailable, match="the-key makes no sense"):
        decode_topic(line + b"crc32c=%08x\n" % crc32c(line), "the-key")


def test_another_format_is_told() -> None:
    with pytest.raises(CatalogueUnavailable, match="written by another version"):
        decode_manifest(lines({"v": 2}), KEY)


@pytest.mark.parametrize("key", ["manifest/7", f"manifest/{'x' * 20}", f"manifest/{'٣' * 20}"])
def test_malformed_manifest_key_raises(key: str) -> None:
    with pytest.raises(CatalogueUnavailable, match="is no manifest"):
        version_of(key)
