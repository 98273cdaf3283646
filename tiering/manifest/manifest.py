"""Manifests: the state of a partition in the tier, and its changes, as a pure machine. docs/formats/tier.md has the
fields.

A change is a function from a manifest to the next one. `tiering.manifest.manifest_log` ensures that only the right
writer writes it, on the newest version. A segment is *copied* only when an entry says so. An object is deleted only
when it is *doomed*; then its generation is never used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tiering.errors import TierDamaged

DOOMED_TOGETHER_MAX = 256
PAGE_ENTRIES = 256
NO_LEADERS_EPOCH = 2**31 - 1
EVERYTHING = 2**63 - 1  # above every offset


class Fence(NamedTuple):
    """The fence of a writer: a restored cluster has a higher owner generation, a new leader a higher leader epoch."""

    owner_generation: int
    leader_epoch: int


class Intent(Struct, frozen=True):
    """A segment whose upload has begun: the parts of its key. `digest` is that of the whole object."""

    base: int
    end: int
    generation: int
    digest: str


class SegmentEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A copied segment.

    `records_digest` is that of its footer. Until `late_put_until_ms` another request to put it may be under way.
    `min_timestamp_ms` is that of its footer, too; -1, which is not written, means unknown.
    """

    base: int
    end: int
    generation: int
    digest: str
    records_digest: str
    size_bytes: int
    object_size_bytes: int
    crc32c: int
    records: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    leader_epoch: int
    has_aborted: bool
    late_put_until_ms: int
    min_timestamp_ms: int = -1

    @property
    def intent(self) -> Intent:
        return Intent(self.base, self.end, self.generation, self.digest)

    def is_of(self, base: int, end: int, digest: bytes) -> bool:
        """Whether this is the segment between these offsets whose batches have that digest."""
        return (self.base, self.end, self.records_digest) == (base, end, digest.hex())


class Page(Struct, frozen=True):
    """A page: an object with the oldest entries of a manifest."""

    first: int
    end: int
    generation: int
    digest: str
    count: int
    size_bytes: int


class Doomed(Struct, frozen=True):
    """A segment, or a page, that is to be deleted.

    `late_put`: a request to put it may still be under way. `size_bytes`: of its records; 0 for a page, and for a
    segment that was never copied.
    """

    since_ms: int
    late_put: bool = False
    segment: Intent | None = None
    page: Page | None = None
    size_bytes: int = 0


class Manifest(Struct, frozen=True, kw_only=True):
    """A version of a manifest; version 0 means that there is none yet."""

    version: int = 0
    fence: Fence = Fence(0, -1)
    incarnation: str = ""
    nonce: str = ""
    written_ms: int = 0
    log_start: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    generation: int = 0
    pages: tuple[Page, ...] = ()
    entries: tuple[SegmentEntry, ...] = ()
    copying: Intent | None = None
    doomed: tuple[Doomed, ...] = ()
    is_deleted: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no segment is copied."""
        return not self.pages and not self.entries

    @property
    def first_offset(self) -> int | None:
        """The first copied offset; None without any."""
        if self.pages:
            return self.pages[0].first
        return self.entries[0].base if self.entries else None

    @property
    def end(self) -> int | None:
        """The end of the copied segments, where the next one has to begin; None: anywhere."""
        if self.entries:
            return self.entries[-1].end
        return self.pages[-1].end if self.pages else None

    @property
    def size_bytes(self) -> int:
        """Size of the records that are copied; those below the log start count until they are doomed."""
        return sum(one.size_bytes for one in self.pages) + sum(one.size_bytes for one in self.entries)

    @property
    def segment_count(self) -> int:
        """The number of copied segments, counted as in `size_bytes`."""
        return sum(one.count for one in self.pages) + len(self.entries)


def check(manifest: Manifest) -> None:
    """Raise TierDamaged unless segments and epochs are in order, without gaps."""
    bounds = [*((one.first, one.end) for one in manifest.pages), *((one.base, one.end) for one in manifest.entries)]
    if any(end <= first for first, end in bounds):
        raise TierDamaged("a segment ends where it begins, or before")
    if any(before[1] != behind[0] for before, behind in pairwise(bounds)):
        raise TierDamaged("segments do not follow each other")
    if manifest.copying is not None and bounds and manifest.copying.base != bounds[-1][1]:
        raise TierDamaged("the segment that is being copied does not follow the copied segments")
    if any(before[0] >= behind[0] or before[1] > behind[1] for before, behind in pairwise(manifest.epochs)):
        raise TierDamaged("leader epochs do not rise")


def begin_copy(manifest: Manifest, base: int, end: int, digest: str, now_ms: int) -> Manifest:
    """Begin the upload of a segment. Another upload that has begun is given up."""
    assert manifest.end in (None, base), "segments are copied one after the other"
    underway = manifest.copying
    if underway is not None and (underway.base, underway.end, underway.digest) == (base, end, digest):
        return manifest
    if underway is not None:
        manifest = give_up(manifest, now_ms)
    return replace(manifest, copying=Intent(base, end, manifest.generation, digest))


def end_copy(manifest: Manifest, entry: SegmentEntry, epochs: Sequence[tuple[int, int]]) -> Manifest:
    """Finish an upload: the object is complete and sound. `epochs` are those of the log up to its end."""
    assert manifest.copying == entry.intent, "the uploaded object is the intended one"
    return replace(manifest, copying=None, entries=(*manifest.entries, entry), epochs=tuple(epochs))


def give_up(manifest: Manifest, now_ms: int) -> Manifest:
    """Give up the upload that has begun."""
    if manifest.copying is None:
        return manifest
    return replace(_doom(manifest, [Doomed(now_ms, late_put=True, segment=manifest.copying)]), copying=None)


def is_below_start(manifest: Manifest) -> bool:
    """Whether copied segments may lie wholly below the log start."""
    if manifest.pages:
        return manifest.pages[0].first < manifest.log_start  # its first segment may yet reach above it
    return bool(manifest.entries) and manifest.entries[0].end <= manifest.log_start


class Shed(NamedTuple):
    """A manifest without entries below its log start, and the rest of its first page, which is to become a new page."""

    manifest: Manifest
    rest: tuple[SegmentEntry, ...] = ()


def shed(manifest: Manifest, log_start: int, now_ms: int, first_page: Sequence[SegmentEntry] = ()) -> Shed:
    """Move the log start, and doom the first entries wholly below it, as many as one version may doom.

    `first_page`: the entries of the first page, if there are pages. Its rest becomes the first page.
    """
    manifest = replace(manifest, log_start=max(log_start, manifest.log_start))
    if manifest.copying is not None and manifest.copying.end <= manifest.log_start:
        manifest = give_up(manifest, now_ms)
    return _without(manifest, manifest.log_start, now_ms, first_page)


def withdraw(manifest: Manifest, now_ms: int, first_page: Sequence[SegmentEntry] = ()) -> Shed:
    """Take the log out of the tier: doom the first entries, as `shed` does."""
    return _without(give_up(manifest, now_ms), EVERYTHING, now_ms, first_page)


def _without(manifest: Manifest, offset: int, now_ms: int, first_page: Sequence[SegmentEntry]) -> Shed:
    if manifest.pages:
        page = manifest.pages[0]
        gone, rest = _split(first_page, offset)
        if not gone:
            return Shed(manifest)
        doomed = [Doomed(now_ms, late_put=True, page=page), *(_doomed(one, now_ms) for one in gone)]
        return Shed(replace(_doom(manifest, doomed), pages=manifest.pages[1:]), rest)
    gone, rest = _split(manifest.entries, offset)
    kept = (*gone[DOOMED_TOGETHER_MAX:], *rest)
    doomed = [_doomed(one, now_ms) for one in gone[:DOOMED_TOGETHER_MAX]]
    return Shed(replace(_doom(manifest, doomed), entries=kept))


def _doomed(entry: SegmentEntry, now_ms: int) -> Doomed:
    late_put = entry.late_put_until_ms > now_ms
    return Doomed(now_ms, late_put=late_put, segment=entry.intent, size_bytes=entry.size_bytes)


def _split(entries: Sequence[SegmentEntry], offset: int) -> tuple[tuple[SegmentEntry, ...], tuple[SegmentEntry, ...]]:
    count = sum(one.end <= offset for one in entries)
    return tuple(entries[:count]), tuple(entries[count:])


def forget(manifest: Manifest, deleted: Sequence[Doomed]) -> Manifest:
    """Drop doomed objects that are deleted, and that no request can put any more."""
    return replace(manifest, doomed=tuple(one for one in manifest.doomed if one not in deleted))


def diverge(manifest: Manifest, offset: int, now_ms: int, paged: Sequence[SegmentEntry] = ()) -> Manifest:
    """Doom the entries from `offset` on, where the log of a new leader diverges, and the entry that holds it.

    `paged`: the entries of all pages. If `offset` lies within them, they come out of their pages.
    """
    if manifest.end is None or manifest.end <= offset:
        return manifest
    manifest = give_up(manifest, now_ms)
    doomed: list[Doomed] = []
    if manifest.pages and manifest.pages[-1].end > offset:
        doomed += [Doomed(now_ms, late_put=True, page=page) for page in manifest.pages]
        manifest = replace(manifest, pages=(), entries=(*paged, *manifest.entries))
    kept, gone = _split(manifest.entries, offset)
    doomed += [Doomed(now_ms, late_put=True, segment=one.intent, size_bytes=one.size_bytes) for one in gone]
    manifest = replace(_doom(manifest, doomed), entries=kept)
    end = offset if manifest.end is None else manifest.end
    return replace(manifest, epochs=tuple(one for one in manifest.epochs if one[1] < end))


def _doom(manifest: Manifest, doomed: Sequence[Doomed]) -> Manifest:
    if not doomed:
        return manifest
    return replace(manifest, doomed=(*manifest.doomed, *doomed), generation=manifest.generation + 1)
