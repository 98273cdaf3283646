"""Manifests, pages and topic copies of a tier, from bytes: docs/formats/tier.md, as far as a reader needs it. Pure.

Each is one line of JSON, and a line with its CRC-32C. If one is damaged, or is of another version, decoding raises
CatalogueUnavailable with the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from crc32c import crc32c

from spark_connectors.segments.sealed import CatalogueUnavailable

VERSIONS_PER_BLOCK: Final = 64
_FORMAT: Final = 1
_CRC_LINE: Final = b"crc32c=%08x\n"
_NUMBER_MAX: Final = 2**63 - 1
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_RECORDS_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_VERSION_NAME: Final = re.compile(r"[0-9]{20}")

T = TypeVar("T")


class SegmentEntry(NamedTuple):
    """A copied segment. `size_bytes` and `records_digest` are those of its records. `records`: their number; -1:
    unknown.
    """

    base: int
    end: int
    generation: int
    digest: str
    records_digest: str
    size_bytes: int
    max_timestamp_ms: int
    min_timestamp_ms: int = -1
    records: int = -1

    @property
    def name(self) -> str:
        """The key without the prefix of the partition."""
        return _name(self.base, self.end, self.generation, self.digest)


class Page(NamedTuple):
    """An object with entries for the offsets from `base` up to `end`."""

    base: int
    end: int
    generation: int
    digest: str

    @property
    def name(self) -> str:
        """The key without the prefix of the partition."""
        return f"page/{_name(self.base, self.end, self.generation, self.digest)}"


class Manifest(NamedTuple):
    """A version of a manifest. The pages have the oldest entries."""

    version: int
    log_start: int
    pages: tuple[Page, ...]
    entries: tuple[SegmentEntry, ...]
    is_deleted: bool

    @property
    def first_offset(self) -> int | None:
        """First offset of the copied segments; None without any."""
        return self.bounds[0].base if self.bounds else None

    @property
    def end(self) -> int | None:
        """End offset of the copied segments; None without any."""
        return self.bounds[-1].end if self.bounds else None

    @property
    def bounds(self) -> tuple[Page | SegmentEntry, ...]:
        """Pages and entries, ascending."""
        return (*self.pages, *self.entries)


class TopicCopy(NamedTuple):
    """Copy of a topic's description."""

    topic_id: bytes
    topic: str
    partition_count: int


def manifest_name(version: int) -> str:
    """Key of a manifest without the prefix of the partition."""
    return f"manifest/{version:020d}"


def version_of(key: str) -> int:
    """Version of a manifest, by its key. Raises CatalogueUnavailable for a key of another form."""
    name = key.rpartition("/")[2]
    if not _VERSION_NAME.fullmatch(name):
        raise CatalogueUnavailable(f"{key} is no manifest")
    return int(name)


def collected_name(version: int) -> str:
    """Name of the collected block of this version: it says that all versions of the block are deleted."""
    return f"collected/{version // VERSIONS_PER_BLOCK:010d}"


def _name(base: int, end: int, generation: int, digest: str) -> str:
    return f"{base:020d}-{end:020d}-{generation:010d}-{digest}"


def decode_manifest(data: bytes, key: str) -> Manifest:
    def decoded(found: _Fields) -> Manifest:
        manifest = Manifest(
            found.number("version"),
            found.number("log_start"),
            tuple(map(_page, found.several("pages"))),
            tuple(map(_entry, found.several("entries"))),
            found.truth("is_deleted"),
        )
        _check_order(manifest.bounds)
        if manifest.version != version_of(key):
            raise ValueError("it is another version")
        return manifest

    return _checked(data, key, decoded)


def decode_page(data: bytes, page: Page, key: str) -> tuple[SegmentEntry, ...]:
    def decoded(found: _Fields) -> tuple[SegmentEntry, ...]:
        entries = tuple(map(_entry, found.several("entries")))
        _check_order(entries)
        return entries

    if blake2b(data, digest_size=len(page.digest) // 2).hexdigest() != page.digest:
        raise CatalogueUnavailable(f"{key} is not the page that was written")
    return _checked(data, key, decoded)


def decode_topic(data: bytes, key: str) -> TopicCopy:
    def decoded(found: _Fields) -> TopicCopy:
        topic_id = bytes.fromhex(found.text("topic_id", _DIGEST))
        return TopicCopy(topic_id, found.text("topic"), found.number("partition_count"))

    return _checked(data, key, decoded)


class _Fields:
    """Fields of a JSON object. Raises KeyError for a missing field, ValueError for a wrong value."""

    def __init__(self, found: Any) -> None:
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        self._found: Mapping[str, Any] = found

    def number(self, name: str, least: int = 0, default: int | None = None) -> int:
        value = self._found[name] if default is None else self._found.get(name, default)
        if type(value) is not int or not least <= value <= _NUMBER_MAX:
            raise ValueError(f"{name} is no number that can be")
        return value

    def text(self, name: str, pattern: re.Pattern[str] | None = None) -> str:
        value = self._found[name]
        if not isinstance(value, str) or (pattern is not None and not pattern.fullmatch(value)):
            raise ValueError(f"{name} is no text that can be")
        return value

    def truth(self, name: str) -> bool:
        value = self._found[name]
        if not isinstance(value, bool):
            raise ValueError(f"{name} is neither true nor false")
        return value

    def several(self, name: str) -> list[_Fields]:
        value = self._found[name]
        if not isinstance(value, list):
            raise ValueError(f"{name} is no list")
        return [_Fields(one) for one in value]


def _checked(data: bytes, key: str, decoded: Callable[[_Fields], T]) -> T:
    line, _, checksum = data.rpartition(b"crc32c=")
    if not line or b"crc32c=" + checksum != _CRC_LINE % crc32c(line):
        raise CatalogueUnavailable(f"{key} fails its CRC")
    try:
        found = _Fields(json.loads(line))
        version = found.number("v")
        if version == _FORMAT:
            return decoded(found)
    except (KeyError, ValueError, RecursionError) as error:
        raise CatalogueUnavailable(f"{key} makes no sense: {error}") from error
    raise CatalogueUnavailable(f"{key} has format {version}: it was written by another version of Kafkawire")


def _page(found: _Fields) -> Page:
    digest = found.text("digest", _DIGEST)
    return Page(found.number("first"), found.number("end"), found.number("generation"), digest)


def _entry(found: _Fields) -> SegmentEntry:
    return SegmentEntry(
        found.number("base"),
        found.number("end"),
        found.number("generation"),
        found.text("digest", _DIGEST),
        found.text("records_digest", _RECORDS_DIGEST),
        found.number("size_bytes"),
        found.number("max_timestamp_ms", -1),
        found.number("min_timestamp_ms", -1, -1),
        found.number("records", -1, -1),
    )


def _check_order(bounds: Sequence[Page | SegmentEntry]) -> None:
    """Raises ValueError for gaps, overlaps, and empty segments."""
    if any(one.end <= one.base for one in bounds):
        raise ValueError("a segment ends where it begins, or before")
    if any(before.end != behind.base for before, behind in pairwise(bounds)):
        raise ValueError("segments do not follow each other")
